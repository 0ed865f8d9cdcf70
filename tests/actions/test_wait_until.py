"""Commands that are run until they succeed, by a real shell."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tenure.actions import new_registry
from tenure.model.errors import HostUnreachable, InvalidArguments, StillRunning, TransportError
from tenure.model.status import HostStatus
from tenure.ports.execution import Command, Endpoint, Exit, Output, TaskResult, Transport
from tenure.transports.local import LocalTransport
from tenure.transports.routing import UnreachableTransport
from tests.actions.making import new_task
from tests.transports.keeping import Kept, runs

pytestmark = pytest.mark.slow

COUNTING = 'echo x >>count; n=$(wc -l <count); echo "attempt" $n; echo "still" $n >&2; '
PATIENCE = 20.0
AWAY = Endpoint(name="web1", address="ssh://web1")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
async def transport() -> AsyncIterator[LocalTransport]:
    transport = LocalTransport()
    yield transport
    await transport.close()


async def wait(transport: Transport, cmd: str, kept: Kept | None = None, **args: Any) -> TaskResult:
    args = {"cmd": cmd, "interval": "1ms", **args}
    task = new_task("wait.until", args, host=AWAY, env={"MARK": "m"})
    return await new_registry()["wait.until"].apply(task, transport, kept or Kept())


def told(word: str, times: int) -> bytes:
    return b"".join(f"{word} {number}\n".encode() for number in range(1, times + 1))


async def test_it_is_so_at_once(transport: LocalTransport) -> None:
    kept = Kept()
    assert await wait(transport, 'echo "$MARK"', kept) == TaskResult(exit_code=0)
    assert kept.stdout == b"m\n"


async def test_it_comes_true_and_every_attempt_is_heard(transport: LocalTransport) -> None:
    kept = Kept()
    result = await wait(transport, COUNTING + "[ $n -ge 4 ]", kept)
    assert result == TaskResult(exit_code=0)
    assert (kept.stdout, kept.stderr) == (told("attempt", 4), told("still", 4))


async def test_an_attempt_is_heard_while_it_runs(transport: LocalTransport, place: Path) -> None:
    os.mkfifo(place / "go")
    heard = Awaited()
    cmd = "echo before; cat go; exit 0"
    waiting = asyncio.create_task(wait(transport, cmd, heard))
    await asyncio.wait_for(heard.something.wait(), PATIENCE)
    assert heard.stdout == b"before\n"
    await asyncio.to_thread((place / "go").write_text, "after\n")
    assert (await waiting).status is HostStatus.SUCCESS
    assert heard.stdout == b"before\nafter\n"


class Awaited(Kept):
    def __init__(self) -> None:
        super().__init__()
        self.something = asyncio.Event()

    async def write(self, stream: str, data: bytes) -> None:
        await super().write(stream, data)
        self.something.set()


async def test_exports_are_those_of_the_attempt_that_succeeded(transport: LocalTransport) -> None:
    cmd = COUNTING + 'echo "N=$n" >>"$TENURE_OUTPUT"; echo "TENURE_EXPORT:M=$n"; [ $n -ge 2 ]'
    result = await wait(transport, cmd, export_vars=True)
    assert result.vars == {"N": "2", "M": "2"}


async def test_it_does_not_come_true_in_time(transport: LocalTransport) -> None:
    kept = Kept()
    cmd = COUNTING + "[ $n -lt 3 ] || exec sleep 1000; exit 7"
    result = await wait(transport, cmd, kept, timeout="1s")
    assert (result.status, result.kind, result.exit_code) == (HostStatus.FAILED, "timeout", 7)
    assert result.message == "not so within 1s, 3 attempts; the last said: exit 7: still 2"
    assert kept.stdout == told("attempt", 3)


async def test_an_attempt_that_never_ends_is_ended(transport: LocalTransport) -> None:
    kept = Kept()
    result = await wait(transport, "echo $$; exec sleep 1000", kept, timeout="1s")
    [pid] = await kept.numbers(1)
    assert not runs(pid)
    assert result.message == "not so within 1s, 1 attempt; the last said: the first has not ended"


async def test_being_cancelled_tells_the_last_words(transport: LocalTransport, place: Path) -> None:
    os.mkfifo(place / "pid")
    kept = Kept()
    cmd = COUNTING + "[ $n -lt 2 ] || { echo $$ >pid; exec sleep 1000; }; exit 1"
    waiting = asyncio.create_task(wait(transport, cmd, kept))
    pid = int(await asyncio.to_thread((place / "pid").read_text))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not runs(pid)
    assert kept.stdout == told("attempt", 2)


@pytest.mark.parametrize(
    ("cmd", "args", "kind"),
    [
        ("true", {"dir": "/no/such"}, "start"),
        ("true " * 500_000, {}, "start"),
        ('echo oops >>"$TENURE_OUTPUT"', {}, "exports"),
    ],
)
async def test_what_another_attempt_cannot_mend_fails_at_once(
    cmd: str, args: dict[str, Any], kind: str, transport: LocalTransport
) -> None:
    result = await wait(transport, cmd, **args)
    assert (result.status, result.kind) == (HostStatus.FAILED, kind)


class Booting(UnreachableTransport):
    """Cannot be reached at first."""

    def __init__(self, attempts: int, error: Exception | None = None) -> None:
        self._left = attempts
        self._error = error

    async def run(self, host: Endpoint, command: Command, output: Output) -> Exit:
        if self._left:
            self._left -= 1
            raise self._error or HostUnreachable(host.name, host.address, "no route")
        await output.write("stdout", b"up\n")
        return Exit(code=0)


async def test_a_host_that_boots_is_waited_for_if_there_is_an_end() -> None:
    kept = Kept()
    assert (await wait(Booting(3), "true", kept, timeout="1m")).status is HostStatus.SUCCESS
    assert kept.stdout == b"up\n"
    with pytest.raises(HostUnreachable, match="no route"):
        await wait(Booting(3), "true")


async def test_an_attempt_of_which_nobody_knows_the_end_is_no_success() -> None:
    lost = Booting(2, TransportError("status lost"))
    assert (await wait(lost, "true")).status is HostStatus.SUCCESS
    with pytest.raises(StillRunning):
        await wait(Booting(2, StillRunning("it runs")), "true", timeout="1m")


@pytest.mark.parametrize("args", [{"interval": "2"}, {"timeout": 3}, {"timeout": "-1s"}])
async def test_arguments_nobody_checked_before(args: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments, match="must be a duration like 30s"):
        await wait(UnreachableTransport(), "true", **args)
