"""Actions through the local transport: real processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tenure.actions import new_registry
from tenure.model.errors import HostUnreachable, LeaseLost, StillRunning, TransportError
from tenure.model.status import HostStatus
from tenure.ports.execution import Command, Endpoint, Exit, Output, TaskResult, Transport
from tenure.transports.local import LocalTransport
from tenure.transports.routing import UnreachableTransport
from tests.actions.making import HERE, new_task
from tests.transports.keeping import Kept, runs


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


async def test_a_command_fails_with_its_last_word(transport: LocalTransport) -> None:
    result = await apply(transport, "cmd.run", {"cmd": "echo first >&2; echo why >&2; exit 3"})
    assert (result.kind, result.exit_code, result.message) == ("exit", 3, "exit 3: why")


async def test_noise_of_every_kind_is_no_trouble(transport: LocalTransport) -> None:
    script = r"printf '\377\000\033[2J\n'; printf '\377\000\n' >&2; exit 1"
    kept = Kept()
    result = await apply(transport, "cmd.run", {"cmd": script, "export_vars": True}, kept)
    assert kept.stdout == b"\xff\0\x1b[2J\n"
    assert result.message == "exit 1: \ufffd"


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


@pytest.mark.parametrize("wanted", [False, "no", "off", 0, None])
async def test_lines_are_exports_only_on_request(transport: LocalTransport, wanted: object) -> None:
    args = {"cmd": "echo TENURE_EXPORT:A=1", "export_vars": wanted}
    assert (await apply(transport, "cmd.run", args)).vars == {}


@pytest.mark.parametrize("wanted", [True, "yes", "On", 1, "true"])
async def test_lines_are_exports_on_request(transport: LocalTransport, wanted: object) -> None:
    args = {"cmd": "echo TENURE_EXPORT:A=1", "export_vars": wanted}
    assert (await apply(transport, "cmd.run", args)).vars == {"A": "1"}


async def test_a_bad_export_file_fails_and_names_the_line(transport: LocalTransport) -> None:
    script = 'echo A=1 >> "$TENURE_OUTPUT"; echo oops >> "$TENURE_OUTPUT"'
    result = await apply(transport, "cmd.run", {"cmd": script})
    assert (result.status, result.kind) == (HostStatus.FAILED, "exports")
    assert "line 2" in (result.message or "")


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


async def test_a_script_longer_than_any_argument(transport: LocalTransport) -> None:
    script = "x=1\n" * 500_000 + "exit 7"
    assert (await apply(transport, "shell.run", {"script": script})).exit_code == 7


async def test_a_command_longer_than_any_argument_says_what_to_do(
    transport: LocalTransport,
) -> None:
    result = await apply(transport, "cmd.run", {"cmd": "true " * 500_000})
    assert (result.status, result.kind, result.exit_code) == (HostStatus.FAILED, "start", None)
    assert "shell.run" in (result.message or "")


async def test_a_folder_that_is_not_there(transport: LocalTransport) -> None:
    result = await apply(transport, "cmd.run", {"cmd": "true", "dir": "/no/such"})
    assert (result.kind, result.status) == ("start", HostStatus.FAILED)


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
