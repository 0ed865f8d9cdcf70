"""Waiting for a turn, told apart from what is waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from tenure.ports.transport import Command, Endpoint, Exit, Output, Transport


@runtime_checkable
class TakesTurns(Transport, Protocol):
    """A transport that bears only so many commands at once.

    Without it the time a command waits for others counts as its own, and may time it out.
    """

    async def run_in_turn(
        self, host: Endpoint, command: Command, output: Output, begins: Callable[[], None]
    ) -> Exit:
        """As ``run``. ``begins`` is called once, when the command waits for no other any more;
        never if it does not get that far."""
        ...
