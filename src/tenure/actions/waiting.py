"""Trying again and again until it is so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from msgspec import Struct

from tenure.actions.durations import duration, seconds_of
from tenure.ports.action import Task
from tenure.workflow.durations import show_duration

_INTERVAL = "2s"

PATIENCE = (
    duration("interval", f"How long to wait between two attempts; {_INTERVAL} if not given."),
    duration(
        "timeout",
        "How long to wait in all. Without it only the step's own timeout ends the waiting.",
    ),
)


class Patience(Struct, frozen=True):
    interval: float
    timeout: float | None

    @property
    def shown(self) -> str:
        return "" if self.timeout is None else f" within {show_duration(self.timeout)}"


def patience_of(task: Task) -> Patience:
    """``InvalidArguments``."""
    return Patience(seconds_of(task, "interval", _INTERVAL) or 0, seconds_of(task, "timeout"))


async def until(attempt: Callable[[], Awaitable[bool]], patience: Patience) -> bool:
    """Whether an attempt came true in time. The last one is cut short when time is up."""
    limit = asyncio.timeout(patience.timeout)
    try:
        async with limit:
            while not await attempt():
                await _pause(patience.interval)
    except TimeoutError:
        if not limit.expired():
            raise
        return False
    return True


async def _pause(seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()
