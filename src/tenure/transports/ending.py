"""Ending a child's process group before its time: TERM, grace, KILL, and seeing that it is gone."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from tenure.model.errors import StillRunning
from tenure.ports.execution import Output
from tenure.transports import group
from tenure.transports.child import Child
from tenure.transports.foreign import signal_as
from tenure.transports.streams import UntilItFails

_AFTER_KILL = 5.0
"""Seconds the system has to carry out a KILL. A process it cannot end (stuck in a driver, another
user's) is reported rather than waited for."""
_FIRST_LOOK, _LAST_LOOK = 0.005, 0.1


async def end(child: Child, output: Output | None, become: str | None) -> None:
    """Returns when the leader has been reaped and nothing in its group runs any more.

    What it still prints goes to ``output`` if there is one. Being cancelled (again) ends the grace
    at once. ``StillRunning``: it could not be ended.
    """
    try:
        async with asyncio.timeout(child.grace):
            await _signal(child, signal.SIGTERM, become)
            await child.streams.hand_over(UntilItFails(output))
            await _gone(child)
    except (TimeoutError, asyncio.CancelledError):
        try:
            await whatever_happens(kill(child, become))
        except StillRunning:
            child.abandon()
            raise


async def kill(child: Child, become: str | None) -> None:
    """Without grace. ``StillRunning``: it could not be ended."""
    try:
        async with asyncio.timeout(_AFTER_KILL):
            if not child.ended or group.lives(child.pid):
                await _signal(child, signal.SIGKILL, become)
            await _gone(child)
    except TimeoutError:
        raise StillRunning(
            f"process {child.pid}, or what it started, was told to end and could not be killed; "
            f"look for it with: ps -g {child.pid}"
        ) from None


async def whatever_happens(work: Coroutine[Any, Any, None]) -> None:
    """Wait for work that being cancelled could not make any faster."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    task.result()


async def _gone(child: Child) -> None:
    """The kernel tells nobody when a group becomes empty: it has to be looked at. The thorough look
    is for groups that do not become empty soon."""
    pause = _FIRST_LOOK
    while not child.ended or _outlived(child, thorough=pause >= _LAST_LOOK):
        await asyncio.sleep(pause)  # noqa: TID251 - see above
        pause = min(2 * pause, _LAST_LOOK)


def _outlived(child: Child, *, thorough: bool) -> bool:
    child.reap()
    return group.lives(child.pid) if thorough else group.exists(child.pid)


async def _signal(child: Child, number: int, become: str | None) -> None:
    await signal_as(become, child.pid, number)
    with suppress(PermissionError):
        group.send(child.pid, number)
