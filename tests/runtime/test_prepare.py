"""What a run must be given is asked for before it is stored; files travel with it as they were."""

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
from tests.runtime.puppets import Puppet, step, workflow

FILE = """\
version: v1
name: deploy
inventory: {hosts: {a: {address: local}, b: {address: local}}}
steps:
  - name: one
    targets: [a]
    action: env.set
    args: {env: {RELEASE: "${{ relase }}"}}
  - name: two
    targets: [b]
    action: env.set
    args: {env: {SAME: "${{ RELEASE ~ suffix }}"}}
"""


def mistakes(error: pytest.ExceptionInfo[tenure.InvalidWorkflow]) -> list[str]:
    return [str(mistake).partition("; ")[0] for mistake in error.value.mistakes]


@pytest.mark.parametrize("how", ["run", "submit"])
async def test_every_variable_that_nobody_defines_is_named_with_its_place(
    queueing: Any, new_runner: NewRunner, how: str
) -> None:
    runner = new_runner(queueing)
    file = tenure.read_workflow(FILE, source="deploy.yaml")
    start = getattr(runner, how)
    with pytest.raises(tenure.InvalidWorkflow) as error:
        await start(file)
    assert mistakes(error) == [
        "deploy.yaml:8:32: steps[0].args.env.RELEASE: 'relase' is not defined here",
        "deploy.yaml:12:39: steps[1].args.env.SAME: 'suffix' is not defined here",
    ]
    assert not (await queueing.list_runs()).items
    with pytest.raises(tenure.InvalidWorkflow) as error:
        await start(file, tenure.RunOptions(vars={"relase": "1"}))
    assert len(mistakes(error)) == 1
    await start(file, tenure.RunOptions(vars={"relase": "1"}, secrets={"suffix": "x"}))


async def test_what_an_earlier_action_may_export_is_left_to_the_run(
    runner: tenure.Runner, act: Puppet
) -> None:
    run = await runner.run(workflow(step("one"), step("two", when="NAME == 1")))
    assert run.status is RunStatus.FAILED
    assert "'NAME' is not defined" in (run.steps[1].hosts["local"].message or "")


async def test_a_secret_that_is_not_given_is_asked_for(
    queueing: Any, new_runner: NewRunner, act: Puppet
) -> None:
    played = workflow(step("one"), secrets=["password", "token"])
    runner = new_runner(queueing)
    with pytest.raises(tenure.InvalidWorkflow) as error:
        await runner.run(played, tenure.RunOptions(secrets={"password": "x"}))
    assert mistakes(error) == ["workflow: secrets[1]: the secret 'token' is not given"]
    assert (act.begun, (await queueing.list_runs()).items) == ([], ())
    queued = await runner.submit(played)
    assert queued.status is RunStatus.QUEUED, "who executes it has the secrets"


HEAD = "version: v1\nname: files\n"
ASKS = f"{HEAD}plan: {{mode: manual-approve}}\n"
TWO_HOSTS = "inventory: {hosts: {a: {address: local}, b: {address: local}}}\n"


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
    memory: InMemoryStore, runner: tenure.Runner, project: Project, tmp_path: Path
) -> None:
    for name in ("a-x", "a-y", "b-x", "b-y", "unused"):
        project.file(name, name)
    dest = f"{tmp_path}/${{host}}-${{item}}.out"
    steps = copies("${host}-${{ item }}", dest, loop="[x, y]")
    run = await runner.run(project.load(f"{HEAD}{TWO_HOSTS}steps:\n{steps}"))
    assert run.status is RunStatus.SUCCESS, run.error
    files = (await definition(memory, run.run_id)).files
    assert files == {name: name.encode() for name in ("a-x", "a-y", "b-x", "b-y")}


async def test_what_cannot_travel_is_refused_for_a_run_that_waits(
    memory: InMemoryStore, runner: tenure.Runner, project: Project
) -> None:
    exports = "  - name: say\n    action: env.set\n    args: {env: {NAME: site.conf}}\n"
    steps = f"{exports}{copies('${NAME}', '/tmp/x')}{copies('missing.conf', '/tmp/x')}"
    for flow, verb in ((ASKS, runner.run), (HEAD, runner.submit)):
        with pytest.raises(tenure.InvalidWorkflow) as refused:
            await verb(project.load(f"{flow}steps:\n{steps}"))
        first, second = refused.value.mistakes
        assert (first.path, second.path) == ("steps[1].args.src", "steps[2].args.src")
        assert "'${NAME}' is a name that is known only while the run lasts" in first.message
        assert second.message == "missing.conf cannot be read: No such file or directory"
    assert (await memory.list_runs()).items == ()


async def test_a_run_executed_at_once_may_make_its_files_itself(
    memory: InMemoryStore, runner: tenure.Runner, project: Project, tmp_path: Path
) -> None:
    args = f"args: {{cmd: 'echo made > {project.folder}/m'}}"
    made = f"  - name: make\n    action: cmd.run\n    {args}\n"
    flow = project.load(f"{HEAD}steps:\n{made}{copies('m', tmp_path / 'out')}")
    run = await runner.run(flow)
    assert run.status is RunStatus.SUCCESS, run.error
    assert (tmp_path / "out").read_text() == "made\n"
    assert (await definition(memory, run.run_id)).files == {}


async def test_only_regular_files_travel(runner: tenure.Runner, project: Project) -> None:
    """To look into a pipe would wait for its writer, and take from its reader."""
    os.mkfifo(project.folder / "pipe")
    with pytest.raises(tenure.InvalidWorkflow, match="pipe cannot be read: it is no regular file"):
        await runner.submit(project.load(f"{HEAD}steps:\n{copies('pipe', '/tmp/x')}"))


async def test_too_large_files_are_refused_before_anything_runs(
    memory: InMemoryStore, runner: tenure.Runner, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_a_name_that_holds_a_secret_is_not_stored(
    memory: InMemoryStore, runner: tenure.Runner, project: Project, tmp_path: Path
) -> None:
    project.file("s3cr3t-name", "content")
    flow = project.load(f"{HEAD}secrets: [token]\nsteps:\n{copies('${token}', tmp_path / 'out')}")
    given = tenure.RunOptions(secrets={"token": "s3cr3t-name"})
    run = await runner.run(flow, given)
    assert run.status is RunStatus.SUCCESS, run.error
    assert "s3cr3t-name" not in (await memory.get_definition(run.run_id) or "")
