"""Ending a process tree before its time: TERM, grace, KILL, and seeing that it is gone."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

from tenure.model.errors import StillRunning, TransportError
from tenure.ports.transport import Output
from tenure.transports import group
from tenure.transports.become import signalling
from tenure.transports.child import Child
from tenure.transports.spawn import environment, spawn

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
            await child.hand_over(_UntilItFails(output))
            await _gone(child)
    except (TimeoutError, asyncio.CancelledError):
        killing = asyncio.ensure_future(kill(child, become))
        while not killing.done():
            try:
                await asyncio.wait({killing})
            except asyncio.CancelledError:
                continue  # it cannot go faster than KILL
        try:
            killing.result()
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
    # Of sudo and that user's processes we may reach sudo only, which would leave them behind.
    if become is not None and os.geteuid() != 0:
        with suppress(TransportError, OSError):  # then it is still running, and said to be
            await _signal_as(become, child.pid, number)
    with suppress(PermissionError):
        group.send(child.pid, number)


async def _signal_as(user: str, leader: int, number: int) -> None:
    spawned = spawn(signalling(user, leader, number), environment({}), None, feed=False)
    helper = Child(asyncio.get_running_loop(), spawned, b"", grace=0)
    try:
        helper.begin()
        await helper.hand_over(_UntilItFails(None))
    finally:
        if helper.ended:
            helper.reap()
        else:
            group.send(helper.pid, signal.SIGKILL)
            helper.abandon()
        helper.close()


class _UntilItFails:
    """Whoever keeps the output may be the reason why the process is ended; that must not keep the
    process from printing its last words and ending well."""

    def __init__(self, output: Output | None) -> None:
        self._output = output

    async def write(self, stream: str, data: bytes) -> None:
        if self._output is None:
            return
        try:
            await self._output.write(stream, data)
        except Exception:  # noqa: BLE001 - the first reason to end it is the one that is raised
            self._output = None
