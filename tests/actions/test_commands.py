"""Commands: from arguments (the cases are in ``commands/*.json``, one file per action) to real
processes, and how their end becomes a result."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tenure.actions import new_registry
from tenure.actions.commands import CUT, CommandAction, PassingOutput, PrintedExports, judge
from tenure.model.errors import (
    HostUnreachable,
    InvalidArguments,
    LeaseLost,
    StillRunning,
    TransportError,
)
from tenure.model.status import HostStatus
from tenure.ports.execution import Command, Endpoint, Exit, Output, TaskResult, Transport
from tenure.runtime.masking import Masks
from tenure.transports.local import LocalTransport
from tenure.transports.routing import UnreachableTransport
from tests.actions.making import HERE, new_task
from tests.transports.keeping import Kept, runs

CASES = [
    pytest.param(file.stem, case, id=f"{file.stem}: {title}")
    for file in sorted(Path(__file__).with_name("commands").glob("*.json"))
    for title, case in json.loads(file.read_text()).items()
]


def task_of(name: str, case: dict[str, Any], tmp_path: Path) -> Any:
    for path, text in case.get("files", {}).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    extra = {key: case[key] for key in ("env", "become") if key in case}
    return new_task(name, case["args"], folder=str(tmp_path), **extra)


@pytest.mark.parametrize(("name", "case"), CASES)
async def test_arguments_become_a_command(name: str, case: dict[str, Any], tmp_path: Path) -> None:
    action = new_registry()[name]
    assert isinstance(action, CommandAction)
    task = task_of(name, case, tmp_path)
    if "refused" in case:
        with pytest.raises(InvalidArguments) as refused:
            action.build(task)
        assert case["refused"] in str(refused.value)
        with pytest.raises(InvalidArguments):
            await action.check(task, LocalTransport())
        return
    expected = dict(case["command"])
    stdin = expected.pop("stdin", "").encode()
    assert action.build(task) == Command(
        **{**expected, "argv": tuple(expected["argv"]), "stdin": stdin}
    )
    check = await action.check(task, LocalTransport())
    assert (check.changed, check.summary) == (None, case["check"])


def test_every_command_action_has_cases() -> None:
    own = {name for name, action in new_registry().items() if isinstance(action, CommandAction)}
    assert {case.values[0] for case in CASES} == own


@pytest.mark.parametrize(
    ("end", "line", "kind", "message"),
    [
        (Exit(code=3), "no such table", "exit", "exit 3: no such table"),
        (Exit(code=3), "", "exit", "exit 3"),
        (Exit(code=137, signal=9), "", "signal", "ended by SIGKILL"),
        (Exit(code=137), "", "exit", "exit 137"),
        (Exit(code=163, signal=35), "x", "signal", "ended by signal 35: x"),
    ],
)
def test_anything_else_is_a_failure_that_says_why(
    end: Exit, line: str, kind: str, message: str
) -> None:
    result = judge(end, line)
    assert (result.status, result.kind, result.message) == (HostStatus.FAILED, kind, message)
    assert result.exit_code == end.code


def test_the_file_wins_over_what_was_printed() -> None:
    printed = PrintedExports()
    printed.feed(b"TENURE_EXPORT:A=printed\nTENURE_EXPORT:B=printed\n")
    result = judge(Exit(code=0, exported=b"A=written\n"), "", printed)
    assert result.vars == {"A": "written", "B": "printed"}


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (Exit(code=0, exported=b"A"), "$TENURE_OUTPUT, line 1: nothing is given to A"),
        (Exit(code=0, exported=b"A=1\n", exported_cut=True), "more than 4 bytes were written"),
    ],
)
def test_exports_that_cannot_be_read_fail_the_task(end: Exit, message: str) -> None:
    result = judge(end, "")
    assert (result.status, result.kind, result.exit_code) == (HostStatus.FAILED, "exports", 0)
    assert message in (result.message or "")


def test_exports_of_a_failure_are_dropped() -> None:
    assert judge(Exit(code=1, exported=b"A=1\n"), "").vars == {}


# -- output on its way ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunks", "line"),
    [
        ([b"kept\n", b" \n\t\n"], "kept"),
        ([b"\x1b[31mred\x1b[0m\r\n"], "[31mred [0m"),
        ([b"x" * 10_000], "x" * 300 + "…"),
    ],
)
async def test_the_last_line_of_stderr_is_remembered(chunks: list[bytes], line: str) -> None:
    passing = PassingOutput(Kept())
    await passing.write("stdout", b"not this\n")
    for chunk in chunks:
        await passing.write("stderr", chunk)
    assert passing.last_error_line() == line


async def test_a_limit_cuts_each_stream_and_marks_the_cut_once() -> None:
    kept = Kept()
    passing = PassingOutput(kept, limit=5)
    for stream in ("stdout", "stderr"):
        for _ in range(4):
            await passing.write(stream, b"abc")
    assert kept.stdout == kept.stderr == b"abcab" + CUT


# -- secrets, masked before anything is cut -------------------------------------------------------

SECRET = "us3rn4me\tp4ssw0rd"


@pytest.mark.parametrize("limit", [1, 6, 13, 14, 22, 30])
@pytest.mark.parametrize("at_once", [1, 7, 100])
async def test_a_limit_cuts_no_secret_in_two(limit: int, at_once: int) -> None:
    kept = Kept()
    passing = PassingOutput(kept, limit=limit, masks=Masks([SECRET]))
    printed = f"12345{SECRET}67890".encode()
    for start in range(0, len(printed), at_once):
        for stream in ("stdout", "stderr"):
            await passing.write(stream, printed[start : start + at_once])
    await passing.finish()
    assert kept.stdout == kept.stderr == b"12345***67890"[:limit] + (CUT if limit < 13 else b"")


@pytest.mark.parametrize(
    "after", [4096 - len(SECRET) + each for each in (0, 1, 9, len(SECRET), len(SECRET) + 1)]
)
async def test_the_last_line_begins_with_no_end_of_a_secret(after: int) -> None:
    passing = PassingOutput(Kept(), masks=Masks([SECRET]))
    await passing.write("stderr", SECRET.encode() + b"x" * after)
    await passing.finish()
    assert set(passing.last_error_line()) <= set("*x…")


@pytest.fixture
async def transport() -> AsyncIterator[LocalTransport]:
    transport = LocalTransport()
    yield transport
    await transport.close()


async def apply(
    transport: Transport,
    action: str,
    args: dict[str, Any],
    output: Output | None = None,
    **rest: Any,
) -> TaskResult:
    task = new_task(action, args, **rest)
    return await new_registry()[action].apply(task, transport, output or Kept())


async def test_a_command_succeeds(transport: LocalTransport) -> None:
    kept = Kept()
    result = await apply(
        transport, "cmd.run", {"cmd": "echo $GREETING"}, kept, env={"GREETING": "hi"}
    )
    assert result == TaskResult(exit_code=0)
    assert kept.stdout == b"hi\n"


async def test_exports_by_file_and_by_line(transport: LocalTransport) -> None:
    script = """
      echo TENURE_EXPORT:A=1
      head -c 200000 /dev/zero
      echo; echo BOPS_EXPORT:B=2
      printf 'C<<EOF\\nx\\ny\\nEOF\\n' >> "$TENURE_OUTPUT"
    """
    kept = Kept()
    args = {"script": script, "export_vars": True, "max_output_bytes": 100}
    result = await apply(transport, "shell.run", args, kept)
    assert result.vars == {"A": "1", "B": "2", "C": "x\ny"}
    assert len(kept.stdout) < 200


@pytest.mark.parametrize("wanted", [False, "no", None, True, "yes", 1])
async def test_lines_are_exports_only_on_request(transport: LocalTransport, wanted: object) -> None:
    args = {"cmd": "echo TENURE_EXPORT:A=1", "export_vars": wanted}
    exported = {"A": "1"} if wanted in (True, "yes") else {}
    assert (await apply(transport, "cmd.run", args)).vars == exported


async def test_a_shell_script_with_hostile_arguments(transport: LocalTransport) -> None:
    kept, hostile = Kept(), ["$(reboot)", "a'b\"c", "-x", ""]
    script = 'for each in "$@"; do printf "%s|" "$each"; done'
    await apply(transport, "script.shell", {"script": script, "args": hostile}, kept)
    assert kept.stdout.decode() == "|".join(hostile) + "|"


async def test_a_python_script_from_a_file(transport: LocalTransport, tmp_path: Path) -> None:
    kept = Kept()
    (tmp_path / "report.py").write_text("import sys\nprint(sys.argv[1:], sys.stdin.read())")
    args = {"src": "report.py", "args": ["a", "b"]}
    result = await apply(transport, "script.python", args, kept, folder=str(tmp_path))
    assert (result.exit_code, kept.stdout) == (0, b"['a', 'b'] \n")


async def test_a_command_longer_than_any_argument_says_what_to_do(
    transport: LocalTransport,
) -> None:
    result = await apply(transport, "cmd.run", {"cmd": "true " * 500_000})
    assert (result.status, result.kind, result.exit_code) == (HostStatus.FAILED, "start", None)
    assert "shell.run" in (result.message or "")


async def test_cancelling_ends_the_process(transport: LocalTransport) -> None:
    kept = Kept()
    task = asyncio.ensure_future(
        apply(transport, "cmd.run", {"cmd": "sleep 1000 & echo $!; wait"}, kept)
    )
    [child] = await kept.numbers(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not runs(child)


async def test_an_unreachable_host_is_the_engines_business() -> None:
    away = Endpoint(name="web1", address="ssh://web1")
    with pytest.raises(HostUnreachable, match="ssh://web1"):
        await apply(UnreachableTransport(), "cmd.run", {"cmd": "true"}, host=away)


class Raising(UnreachableTransport):
    def __init__(self, error: Exception) -> None:
        self.error = error

    async def run(self, host: Endpoint, command: Command, output: Output) -> Exit:
        raise self.error


@pytest.mark.parametrize(
    "error", [StillRunning("it runs"), LeaseLost("run-1", fence=2, owner_id="b")]
)
async def test_what_the_engine_must_know_passes_through(error: Exception) -> None:
    with pytest.raises(type(error)):
        await apply(Raising(error), "cmd.run", {"cmd": "true"})


async def test_a_lost_exit_status_is_a_failure() -> None:
    result = await apply(Raising(TransportError("status lost")), "cmd.run", {"cmd": "true"})
    assert (result.status, result.kind, result.message) == (
        HostStatus.FAILED,
        "transport",
        "status lost",
    )


async def test_checking_runs_nothing(tmp_path: Path) -> None:
    for name, args in {
        "cmd.run": {"cmd": f"touch {tmp_path}/x"},
        "shell.run": {"script": f"touch {tmp_path}/x"},
        "script.shell": {"script": f"touch {tmp_path}/x"},
        "script.python": {"script": f"open('{tmp_path}/x', 'w')"},
    }.items():
        transport = LocalTransport()
        await new_registry()[name].check(new_task(name, args, host=HERE), transport)
        await transport.close()
    assert list(tmp_path.iterdir()) == []
