"""How processes of this machine are begun and seen through, whoever their parent is."""

from __future__ import annotations

from typing import Protocol

from tenure.ports.execution import Command, Output


class Started(Protocol):
    """One process and what it starts. Whoever has it closes it, whatever happens."""

    async def see_through(self, output: Output) -> int:
        """Hand over all it prints until it is over; its exit code, negative for a signal.

        ``NotStarted``: it never ran. ``StillRunning``: something of it lives that should not.
        Any other ``TransportError``: it is gone, and how it ended is not its own doing.
        """
        ...

    async def end(self, output: Output | None) -> None:
        """TERM, grace, KILL; back when everything is gone. What it still prints goes to ``output``
        if there is one. Being cancelled ends the grace at once. ``StillRunning``: it is not gone.
        """
        ...

    def kill(self) -> None:
        """At once, and without waiting: this program is being torn down."""
        ...

    def close(self) -> None:
        """Let go of its streams."""
        ...


class Starter(Protocol):
    async def start(self, command: Command) -> Started:
        """``argv`` is started as it stands: where ``become`` is set, it holds the sudo already.
        ``NotStarted``: nothing runs and nothing stays open."""
        ...

    async def close(self) -> None: ...
