"""What a task can get from the process that executes it."""

from __future__ import annotations

import ctypes
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from pwd import getpwnam
from tempfile import TemporaryDirectory

import pytest

from tests.cli.conftest import TENURE, Cli, finish

pytestmark = pytest.mark.slow

ENVIRONMENT = """\
version: v1
name: environment
secrets: [token]
vars: {greeting: hello}
steps:
  - {name: all, action: cmd.run, args: {cmd: env, env: {GIVEN: by-the-step}}}
"""


@pytest.fixture(autouse=True)
def surroundings(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_POLL_INTERVAL", "0.05s")
    monkeypatch.setenv("TENURE_SECRET_TOKEN", "opensesame")
    monkeypatch.setenv("PGPASSWORD", "of-the-store")
    monkeypatch.setenv("CLOUD_KEY", "of-the-cloud")
    monkeypatch.setenv("CLOUD_NAME", "a cloud")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("https_proxy", "http://proxy:3128")


@contextmanager
def serving(cli: Cli, *command: str) -> Iterator[subprocess.Popen[str]]:
    process = cli.start(*command)
    yield process
    process.terminate()
    finish(process)


def seen_by_a_task(cli: Cli, *command: str) -> dict[str, str]:
    """What a task of a run sees that was queued for this command."""
    with serving(cli, *command):
        done = cli.call("submit", cli.workflow(ENVIRONMENT), "--wait")
    assert done.code == 0, done
    return environment_in(cli.call("logs", "latest").out)


def environment_in(text: str) -> dict[str, str]:
    lines = [line.rpartition("| ")[2] for line in text.splitlines() if "=" in line]
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


@pytest.mark.parametrize("command", [("worker",), ("up", "--no-gateway")])
def test_a_task_gets_the_usual_variables_and_those_of_its_workflow(
    cli: Cli, command: tuple[str, ...]
) -> None:
    seen = seen_by_a_task(cli, *command)
    assert {"PATH", "HOME", "LC_TIME", "https_proxy", "TENURE_RUN_ID", "TENURE_OUTPUT"} <= set(seen)
    assert (seen["GIVEN"], seen["greeting"]) == ("by-the-step", "hello")
    assert "token" in seen
    assert not {"PGPASSWORD", "CLOUD_KEY", "CLOUD_NAME", "TENURE_SECRET_TOKEN"} & set(seen)


def test_settings_name_further_variables(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_PASS_ENV", "CLOUD_*, EDITOR")
    seen = seen_by_a_task(cli, "worker")
    assert (seen["CLOUD_KEY"], seen["CLOUD_NAME"]) == ("of-the-cloud", "a cloud")
    assert "PGPASSWORD" not in seen


def test_a_task_inherits_all_where_that_is_wanted(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_INHERIT_ENV", "true")
    seen = seen_by_a_task(cli, "worker")
    assert seen["PGPASSWORD"] == "of-the-store"
    assert "TENURE_SECRET_TOKEN" not in seen


def test_run_lets_its_tasks_inherit_as_a_shell_would(cli: Cli) -> None:
    done = cli.call("run", cli.workflow(ENVIRONMENT))
    assert done.code == 0
    seen = environment_in(cli.call("logs", "latest").out)
    assert seen["PGPASSWORD"] == "of-the-store"
    assert "TENURE_SECRET_TOKEN" not in seen


SPY = """\
version: v1
name: spy
secrets: [token]
steps:
  - name: spy
    action: shell.run
    args:
      script: |
        supervisor=$PPID
        worker=$(cut -d ' ' -f 4 /proc/$supervisor/stat)
        for pid in $supervisor $worker; do
          for file in environ maps; do
            if [ $(head -c 9 /proc/$pid/$file 2>/dev/null | wc -c) != 0 ]; then
              echo "read $file of $(cat /proc/$pid/comm)"
            fi
          done
          tr '\\0' ' ' < /proc/$pid/cmdline; echo
        done
        cat /proc/$$/environ | tr '\\0' '\\n' | grep -c TENURE_HOST
"""


@pytest.mark.parametrize("command", ["run", "worker", "up"])
def test_a_task_cannot_read_what_its_user_s_processes_hold(cli: Cli, command: str) -> None:
    flow = cli.workflow(SPY)
    if command != "run":
        assert cli.call("submit", flow).code == 0
    process = _without_power("run", flow) if command == "run" else _without_power(command)
    if command != "run":
        assert cli.process("watch", "latest").code == 0
        process.terminate()
    process.wait(60)
    said = cli.call("logs", "latest").out
    assert "tenure-supervisor:" in said, "arguments can be read"
    assert said.splitlines()[-1].endswith("1"), "of a process that is not hidden, all can be read"
    assert "read " not in said


def _without_power(*arguments: str) -> subprocess.Popen[bytes]:
    """Root may look into every process, unless it lacks the capabilities for it."""
    return subprocess.Popen([TENURE, *arguments], preexec_fn=_drop)


def _drop(
    prctl: Callable[..., int] = ctypes.CDLL(None).prctl,
    bounding_set_drop: int = 24,
    ptrace_admin_perfmon: tuple[int, ...] = (19, 21, 38),
) -> None:
    for capability in ptrace_admin_perfmon:
        prctl(bounding_set_drop, capability, 0, 0, 0)


def test_a_password_in_an_argument_gets_a_notice(cli: Cli) -> None:
    refused = cli.call("list", "--store", "postgresql://me:s3cret@127.0.0.1:1/none")
    assert "put the URL in TENURE_STORE" in refused.err
    assert "s3cret" not in refused.err
    assert "TENURE_STORE" not in cli.call("list", "--store", "sqlite:///none.db").err


FILES = """\
version: v1
name: files
secrets: [token]
vars: {folder: "", mode: "0644"}
steps:
  - {name: say, action: cmd.run, args: {cmd: echo said, output_path: "${{ folder }}/kept/here"}}
  - {name: a, action: file.copy, args: {content: "a ${{ token }}", dest: "${{ folder }}/a"}}
  - {name: b, action: template.render, args: {template: "{{ token }}", dest: "${{ folder }}/b"}}
  - {name: c, action: file.copy, args: {content: plain, dest: "${{ folder }}/open-plain"}}
  - name: d
    action: file.copy
    args: {content: "${{ token }}", dest: "${{ folder }}/open-wanted", mode: "0644"}
"""


@pytest.mark.parametrize("store", ["sqlite:///named.db", "file:///{folder}/named"])
def test_what_it_makes_is_for_its_user_alone(cli: Cli, store: str) -> None:
    before = os.umask(0o022)
    try:
        flow, place = cli.workflow(FILES), str(cli.folder / "made")
        done = cli.call("run", flow, "--store", store.format(folder=cli.folder), "--var",
            f"folder={place}")  # fmt: skip
    finally:
        os.umask(before)
    assert done.code == 0, done
    modes = {
        str(path.relative_to(cli.folder)): stat.S_IMODE(path.stat().st_mode)
        for path in cli.folder.rglob("*")
        if path.name != "flow.yaml"
    }
    opened = {name for name, mode in modes.items() if mode & 0o077}
    assert opened == {"made/open-plain", "made/open-wanted"}
    assert {"made/a", "made/b", "made/kept/here"} < set(modes)
    assert any(name.startswith("named") for name in modes)


CALL = """\
version: v1
name: call
steps:
  - {name: inside, action: python.call, args: {function: "%s"}}
"""
SHOP = "import os\n\ndef bill():\n    return {'pid': os.getpid()}\n"


@pytest.mark.parametrize(
    ("allowed", "function", "code"),
    [
        ("", "os:getpid", 1),
        ("", "shop:bill", 1),
        ("shop", "shop:bill", 0),
        ("shop", "shopping:bill", 1),
        ("shop", "shop:os.getpid", 1),
    ],
)
def test_python_runs_inside_a_worker_only_from_modules_that_settings_name(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, allowed: str, function: str, code: int
) -> None:
    (cli.folder / "shop.py").write_text(SHOP)
    (cli.folder / "shopping.py").write_text(SHOP)
    monkeypatch.setenv("PYTHONPATH", str(cli.folder))
    monkeypatch.setenv("TENURE_PYTHON_MODULES", allowed)
    with serving(cli, "worker"):
        done = cli.call("submit", cli.workflow(CALL % function), "--wait")
    assert done.code == code
    assert ("python_modules" in done.out + done.err) == bool(code)


def test_python_runs_inside_run_from_any_module(cli: Cli) -> None:
    assert cli.process("run", cli.workflow(CALL % "tenure.system:hide_memory")).code == 0


OTHER = """\
version: v1
name: other
vars: {folder: "", kept: ""}
steps:
  - name: who
    action: shell.run
    args:
      script: |
        id -un; echo "$HOME $USER"; pwd
        kill -9 $PPID && echo killed
        echo who=$(id -un) >> "$TENURE_OUTPUT"
      output_path: ${{ kept }}
  - {name: exported, action: cmd.run, args: {cmd: "echo exported by $who"}}
  - {name: copy, action: file.copy, args: {content: x, dest: "${{ folder }}/theirs"}}
"""
USER = "nobody"


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A folder that user may write in."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def test_tasks_of_root_s_worker_run_as_the_user_that_settings_name(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, theirs: Path
) -> None:
    monkeypatch.setenv("TENURE_TASK_USER", USER)
    if os.geteuid() != 0:
        assert "only a worker of root" in cli.process("worker").err
        return
    given = ("--wait", "--var", f"folder={theirs}", "--var")
    with serving(cli, "worker"):
        done = cli.call("submit", cli.workflow(OTHER), *given, f"kept={theirs}/kept")
        logged = cli.call("logs", "latest").out
        refused = cli.call("submit", cli.workflow(OTHER), *given, f"kept={cli.folder}/kept")
    assert done.code == 0, done
    user = getpwnam(USER)
    made = [theirs / "theirs", *theirs.glob("kept/*")]
    assert len(made) == 3
    assert {each.stat().st_uid for each in made} == {user.pw_uid}
    said = (theirs / "kept").glob("*stdout*")
    lines = next(said).read_text().splitlines()
    assert lines[0] == USER
    assert lines[1] == f"{user.pw_dir if os.path.isdir(user.pw_dir) else '/'} {USER}"
    assert "killed" not in lines
    assert "exported by nobody" in logged
    assert refused.code == 1
    assert f"{USER} cannot write there" in refused.out + refused.err
    assert not (cli.folder / "kept").exists()


def test_a_user_that_is_not_there_is_refused_at_the_start(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_TASK_USER", "nosuchuser")
    refused = cli.process("worker")
    assert refused.code == 2
    assert "task_user" in refused.err


def test_doctor_says_what_an_operator_can_become(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.call("token", "create", "boss", "--role", "admin").code == 0
    assert "operator" not in cli.call("doctor").out
    assert cli.call("token", "create", "clerk", "--role", "operator").code == 0
    found = cli.call("doctor")
    assert found.code == 1
    assert "an operator's token is as good as an admin's here" in found.out
    monkeypatch.setenv("TENURE_TASK_USER", USER)
    assert "as good as an admin's" not in cli.call("doctor").out
