"""Files that travel with a run: as they were when it was created, whoever executes it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.model.status import RunStatus
from tenure.runtime import prepare
from tenure.runtime.recipe import Definition, decode_definition
from tenure.stores.memory import InMemoryStore
from tests.runtime.conftest import NewRunner

HEAD = "version: v1\nname: files\n"
ASKS = f"{HEAD}plan: {{mode: manual-approve}}\n"
HOSTS = "inventory: {hosts: {a: {address: local}, b: {address: local}}}\n"


class Project:
    """A folder with a workflow in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, name: str, content: str) -> None:
        (self.folder / name).write_text(content)

    def load(self, text: str) -> tenure.WorkflowFile:
        self.file("flow.yaml", text)
        return tenure.load_workflow(self.folder / "flow.yaml")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "project").mkdir()
    return Project(tmp_path / "project")


def copies(src: str, dest: object, **rest: Any) -> str:
    more = "".join(f"    {key}: {value}\n" for key, value in rest.items())
    args = f"    args: {{src: '{src}', dest: '{dest}'}}\n"
    return f"  - name: copy {src}\n    action: file.copy\n{args}{more}"


async def definition(store: InMemoryStore, run_id: str) -> Definition:
    text = await store.get_definition(run_id)
    assert text is not None
    return decode_definition(text)


async def test_a_run_that_waited_has_its_files_though_the_folder_is_gone(
    memory: InMemoryStore, new_runner: NewRunner, project: Project, tmp_path: Path
) -> None:
    project.file("site.conf", "as it was\n")
    project.file("greet.sh", "echo said by a script\n")
    script = "  - name: greet\n    action: script.shell\n    args: {src: greet.sh}\n"
    flow = project.load(f"{ASKS}steps:\n{copies('site.conf', tmp_path / 'out')}{script}")
    waiting = await new_runner(memory).run(flow)
    project.file("site.conf", "changed since\n")
    (project.folder / "greet.sh").unlink()
    await new_runner(memory).approve(waiting.run_id, by="ada")
    run = await new_runner(memory).execute(waiting.run_id)
    assert run.status is RunStatus.SUCCESS, run.error
    assert (tmp_path / "out").read_text() == "as it was\n"
    assert run.steps[1].hosts["local"].stdout == "said by a script\n"


async def test_names_are_worked_out_for_each_host_and_item(
    memory: InMemoryStore, new_runner: NewRunner, project: Project, tmp_path: Path
) -> None:
    for name in ("a-x", "a-y", "b-x", "b-y", "unused"):
        project.file(name, name)
    dest = f"{tmp_path}/${{host}}-${{item}}.out"
    steps = copies("${host}-${{ item }}", dest, loop="[x, y]")
    run = await new_runner(memory).run(project.load(f"{HEAD}{HOSTS}steps:\n{steps}"))
    assert run.status is RunStatus.SUCCESS, run.error
    files = (await definition(memory, run.run_id)).files
    assert files == {name: name.encode() for name in ("a-x", "a-y", "b-x", "b-y")}


async def test_what_cannot_travel_is_refused_for_a_run_that_waits(
    memory: InMemoryStore, new_runner: NewRunner, project: Project
) -> None:
    exports = "  - name: say\n    action: env.set\n    args: {env: {NAME: site.conf}}\n"
    steps = f"{exports}{copies('${NAME}', '/tmp/x')}{copies('missing.conf', '/tmp/x')}"
    runner = new_runner(memory)
    for flow, verb in ((ASKS, runner.run), (HEAD, runner.submit)):
        with pytest.raises(tenure.InvalidWorkflow) as refused:
            await verb(project.load(f"{flow}steps:\n{steps}"))
        first, second = refused.value.mistakes
        assert (first.path, second.path) == ("steps[1].args.src", "steps[2].args.src")
        assert "'${NAME}' is a name that is known only while the run lasts" in first.message
        assert second.message == "missing.conf cannot be read: No such file or directory"
    assert (await memory.list_runs()).items == ()


async def test_a_run_executed_at_once_may_make_its_files_itself(
    memory: InMemoryStore, new_runner: NewRunner, project: Project, tmp_path: Path
) -> None:
    args = f"args: {{cmd: 'echo made > {project.folder}/m'}}"
    made = f"  - name: make\n    action: cmd.run\n    {args}\n"
    flow = project.load(f"{HEAD}steps:\n{made}{copies('m', tmp_path / 'out')}")
    run = await new_runner(memory).run(flow)
    assert run.status is RunStatus.SUCCESS, run.error
    assert (tmp_path / "out").read_text() == "made\n"
    assert (await definition(memory, run.run_id)).files == {}


async def test_without_a_folder_a_file_that_did_not_travel_is_missed_by_name(
    memory: InMemoryStore, new_runner: NewRunner, project: Project, tmp_path: Path
) -> None:
    """Its name changed on the way."""
    project.file("old.conf", "x")
    exports = "  - name: say\n    action: env.set\n    args: {env: {NAME: new}}\n"
    steps = f"vars: {{NAME: old}}\nsteps:\n{exports}{copies('${NAME}.conf', tmp_path / 'out')}"
    runner = new_runner(memory)
    waiting = await runner.run(project.load(f"{ASKS}{steps}"))
    project.file("new.conf", "must not be read")
    await runner.approve(waiting.run_id, by="ada")
    run = await runner.execute(waiting.run_id)
    assert run.status is RunStatus.FAILED
    assert "new.conf did not travel with the run" in (run.steps[1].hosts["local"].message or "")


async def test_only_regular_files_travel(
    memory: InMemoryStore, new_runner: NewRunner, project: Project
) -> None:
    """To look into a pipe would wait for its writer, and take from its reader."""
    os.mkfifo(project.folder / "pipe")
    with pytest.raises(tenure.InvalidWorkflow, match="pipe cannot be read: it is no regular file"):
        await new_runner(memory).submit(project.load(f"{HEAD}steps:\n{copies('pipe', '/tmp/x')}"))


async def test_too_large_files_are_refused_before_anything_runs(
    memory: InMemoryStore, new_runner: NewRunner, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = new_runner(memory)
    project.file("big.sh", "#" * (1024 * 1024 + 1))
    script = "steps:\n  - name: greet\n    action: script.shell\n    args: {src: big.sh}\n"
    with pytest.raises(tenure.InvalidWorkflow, match=r"big\.sh is longer than 1048576 bytes; let"):
        await runner.run(project.load(HEAD + script))
    monkeypatch.setattr(prepare, "MAX_FILES_BYTES", 10)
    project.file("one", "123456")
    project.file("two", "123456")
    steps = f"{copies('one', '/tmp/x')}{copies('two', '/tmp/x')}"
    with pytest.raises(tenure.InvalidWorkflow, match="would travel with the run"):
        await runner.run(project.load(f"{HEAD}steps:\n{steps}"))
    assert (await memory.list_runs()).items == ()


async def test_all_files_together_may_have_32_mib_and_no_byte_more(
    memory: InMemoryStore, new_runner: NewRunner, project: Project
) -> None:
    """Four of the largest there may be, and a byte."""
    for name, size in {"a": 8 << 20, "b": 8 << 20, "c": 8 << 20, "d": 8 << 20, "e": 1}.items():
        project.file(name, "")
        os.truncate(project.folder / name, size)
    steps = "".join(copies(name, "/tmp/x") for name in "abcde")
    with pytest.raises(tenure.InvalidWorkflow) as refused:
        await new_runner(memory).submit(project.load(f"{HEAD}steps:\n{steps}"))
    (only,) = refused.value.mistakes
    assert only.path == "steps[4].args.src"
    assert only.message == "more than 10,000 files or 32 MiB would travel with the run"


async def test_a_name_that_holds_a_secret_is_not_stored(
    memory: InMemoryStore, new_runner: NewRunner, project: Project, tmp_path: Path
) -> None:
    project.file("s3cr3t-name", "content")
    flow = project.load(f"{HEAD}secrets: [token]\nsteps:\n{copies('${token}', tmp_path / 'out')}")
    given = tenure.RunOptions(secrets={"token": "s3cr3t-name"})
    run = await new_runner(memory).run(flow, given)
    assert run.status is RunStatus.SUCCESS, run.error
    assert "s3cr3t-name" not in (await memory.get_definition(run.run_id) or "")
