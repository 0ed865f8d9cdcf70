"""A command that cannot be started says why, and leaves nothing open."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from tenure.model.errors import HostUnreachable, NotStarted
from tenure.ports.execution import Command
from tenure.transports.local import LocalTransport
from tests.transports.keeping import HERE, Kept, sh

pytestmark = pytest.mark.slow


async def refusal(transport: LocalTransport, command: Command) -> str:
    with pytest.raises(NotStarted) as refused:
        await transport.run(HERE, command, Kept())
    assert not isinstance(refused.value, HostUnreachable)
    return str(refused.value)


async def test_no_such_program(transport: LocalTransport) -> None:
    assert "no-such-program is not installed" in await refusal(
        transport, Command(argv=("no-such-program",))
    )


async def test_no_such_working_directory(transport: LocalTransport) -> None:
    told = await refusal(transport, sh("true", cwd="/no/such/folder"))
    assert told == (
        "the working directory /no/such/folder cannot be entered: No such file or directory"
    )


async def test_a_file_that_may_not_be_executed(transport: LocalTransport, tmp_path: Path) -> None:
    program = tmp_path / "plain"
    program.write_text("")
    told = await refusal(transport, Command(argv=(str(program),)))
    assert told == f"{program} may not be executed: Permission denied"


async def test_a_file_that_is_no_program(transport: LocalTransport, tmp_path: Path) -> None:
    program = tmp_path / "noise"
    program.write_bytes(b"\0\1\2")
    program.chmod(0o755)
    assert "could not be started: Exec format error" in await refusal(
        transport, Command(argv=(str(program),))
    )


async def test_too_much_environment_names_the_variable(transport: LocalTransport) -> None:
    told = await refusal(transport, sh("true", env={"SMALL": "x", "HUGE": "x" * (4 << 20)}))
    assert "HUGE (4194304 bytes)" in told
    assert "too much for one process" in told


async def test_too_long_a_command_names_the_way_out(transport: LocalTransport) -> None:
    assert "shell.run" in await refusal(transport, sh("true " + "x" * (4 << 20)))


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"A": "secret\0"}, "variable A holds a NUL character"),
        ({"A": "secret\ud800"}, "variable A holds half a surrogate pair"),
        ({"A=B": "secret"}, "'A=B' cannot be the name"),
        ({"": "secret"}, "'' cannot be the name"),
        ({"A\0": "secret"}, "the name of a variable holds a NUL"),
    ],
)
async def test_a_variable_no_process_can_have(
    transport: LocalTransport, env: dict[str, str], told: str
) -> None:
    message = await refusal(transport, sh("true", env=env))
    assert told in message
    assert "secret" not in message


async def test_an_argument_no_process_can_have(transport: LocalTransport) -> None:
    assert "an argument holds a NUL" in await refusal(transport, Command(argv=("true", "\0")))


async def test_no_file_descriptors_left(
    transport: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left() -> tuple[int, int]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pipe", none_left)
    assert "Too many open files" in await refusal(transport, sh("true"))
    monkeypatch.undo()


async def test_no_place_for_exports(
    transport: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/no/such/folder")
    assert "no place for $TENURE_OUTPUT" in await refusal(transport, sh("true"))
    monkeypatch.undo()


@pytest.mark.parametrize("parent", ["child"], indirect=True)
@pytest.mark.parametrize("script", ["exit 0", "sleep 0.1; exit 0"])
async def test_a_lost_exit_status_is_not_taken_for_success(
    transport: LocalTransport, script: str
) -> None:
    """A program that ignores SIGCHLD has its children reaped by the kernel."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert (await transport.run(HERE, sh(script), Kept())).code == 255
    finally:
        signal.signal(signal.SIGCHLD, before)
