"""How a host is reached."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from msgspec import Struct

DEFAULT_GRACE = 5.0
"""Seconds between TERM and KILL."""


class Endpoint(Struct, frozen=True, kw_only=True):
    """A host as a transport sees it."""

    name: str
    address: str
    """``local``, ``ssh://user@host:port``, ``http://host:port``."""


class Command(Struct, frozen=True, kw_only=True):
    """A process to start. Nothing in it passes through a shell on the way."""

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    """Added to the environment the host gives its processes."""
    stdin: bytes = b""
    cwd: str | None = None
    become: str | None = None
    grace: float = DEFAULT_GRACE
    """When it is ended early."""


class Exit(Struct, frozen=True, kw_only=True):
    """How a process ended. ``code`` as a shell shows it: 128 + n for signal n."""

    code: int
    signal: int | None = None
    exported: bytes = b""
    """What it wrote to the file named by ``$TENURE_OUTPUT``; bounded."""
    exported_cut: bool = False


class Output(Protocol):
    """Takes what a process prints, as it comes."""

    async def write(self, stream: str, data: bytes) -> None:
        """``stream`` is ``stdout`` or ``stderr``. Waits while whoever keeps it is behind, so that
        memory stays bounded whatever is printed."""
        ...


class Copy(Output, Protocol):
    """Files that take what is written here."""

    @property
    def problem(self) -> str | None:
        """Why not all of it could be written, if so."""
        ...


@runtime_checkable
class CopiedOutput(Protocol):
    """An ``Output`` that may be had in files as well."""

    async def copy_into(self, folder: str) -> Copy:
        """New files in ``folder`` (made if it is not there) of the machine that executes the run,
        closed together with this output. ``OSError`` if there cannot be any."""
        ...


class Transport(Protocol):
    """Starts processes on hosts."""

    async def run(self, host: Endpoint, command: Command, output: Output) -> Exit:
        """Run to the end, all output handed over before this returns.

        ``HostUnreachable`` if the host cannot be contacted; ``NotStarted`` if it refuses the
        command; ``StillRunning`` in place of ``CancelledError`` if nothing confirmed its end.
        Cancelling the call ends the whole process tree (TERM, grace, KILL) before
        ``CancelledError`` comes out. A descendant that keeps the pipes open after its parent has
        ended is not waited for longer than the grace period.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and helpers."""
        ...
