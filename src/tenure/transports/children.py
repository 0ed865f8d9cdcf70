"""Processes as children of this program, without a supervisor.

For systems where no supervisor is available or wanted. Cancellation and time-out end the whole
process group; processes that left it on purpose (``setsid``, a daemon) live on, and all do when
this program is killed.

A group may be signalled until its leader is reaped, and after that while it was seen alive a moment
ago: pids are reused in turn, not within a moment.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from tenure.model.errors import NotStarted, StillRunning, TransportError
from tenure.ports.execution import Command, LocalTasks, Output
from tenure.transports.commands import Image, image_of, signalling, why_not
from tenure.transports.streams import Ends, Streams, UntilItFails, lay_pipes
from tenure.transports.supervisor.processes import all_processes

_KILL_TIMEOUT_S = 5.0
"""After a KILL. A process that still lives (stuck in a driver, another user's) is reported."""
_FIRST_LOOK_S, _LAST_LOOK_S = 0.005, 0.1


class ChildStarter:
    def __init__(self, tasks: LocalTasks = LocalTasks()) -> None:
        self._tasks = tasks

    async def start(self, command: Command) -> StartedChild:
        if self._tasks.user is not None:
            raise NotStarted(
                f"tasks are to run as {self._tasks.user} (task_user), which needs a supervisor; "
                "this system allows none"
            )
        image = image_of(command, self._tasks.pass_env)
        try:
            ours, theirs = lay_pipes(feed=bool(command.stdin))
        except OSError as error:
            raise NotStarted(why_not(error, image)) from error
        starting = asyncio.ensure_future(_start(image, theirs))
        try:
            process = await asyncio.shield(starting)
        except BaseException as error:
            ours.close()
            if isinstance(error, OSError):
                raise NotStarted(why_not(error, image)) from error
            starting.add_done_callback(_kill_started)
            if isinstance(error, asyncio.CancelledError):
                await until_done(_ended(starting))
            raise
        return StartedChild(process, ours, command)

    async def close(self) -> None:
        """Nothing is held."""


class StartedChild:
    def __init__(self, process: Process, pipes: Ends, command: Command) -> None:
        self._process = process
        self._group = process.pid
        self._become = command.become
        self._grace = command.grace
        loop = asyncio.get_running_loop()
        self._streams = Streams(loop, pipes, command.stdin, command.grace, self._cut_off)
        self._end = asyncio.ensure_future(process.wait())
        self._end.add_done_callback(lambda _: self._streams.note_end())
        self._outlived = False
        """Whether its leader ended and other processes of its group had to be killed."""
        self._over = False
        self._streams.begin()

    async def see_through(self, output: Output) -> int:
        await self._streams.hand_over(output)
        if self._outlived:
            await self._kill()
        self._over = True
        return self._end.result()

    async def end(self, output: Output | None) -> None:
        if self._over:
            return
        try:
            async with asyncio.timeout(self._grace):
                await self._signal(signal.SIGTERM)
                await self._streams.hand_over(UntilItFails(output))
                await self._gone()
        except (TimeoutError, asyncio.CancelledError):
            await until_done(self._kill())

    def kill(self) -> None:
        _send(self._group, signal.SIGKILL)

    def close(self) -> None:
        self._streams.close()

    async def _kill(self) -> None:
        """End it without grace. Raises ``StillRunning`` if that fails."""
        try:
            async with asyncio.timeout(_KILL_TIMEOUT_S):
                if not self._end.done() or _runs(self._group):
                    await self._signal(signal.SIGKILL)
                await self._gone()
        except TimeoutError:
            raise StillRunning(
                f"process {self._group}, or what it started, was told to end and could not be "
                f"killed; look for it with: ps -g {self._group}"
            ) from None

    async def _gone(self) -> None:
        """Wait until the group is empty, by polling, since the kernel does not report it. The
        thorough check is for groups that do not become empty soon."""
        pause = _FIRST_LOOK_S
        while not self._end.done() or _is_there(self._group, thorough=pause >= _LAST_LOOK_S):
            await asyncio.sleep(pause)  # noqa: TID251 - see above
            pause = min(2 * pause, _LAST_LOOK_S)

    async def _signal(self, number: int) -> None:
        await signal_as(self._become, self._group, number)
        _send(self._group, number)

    def _cut_off(self) -> None:
        """The leader has ended, and its streams are still open after the grace."""
        self._outlived = _runs(self._group)
        self._streams.warn_if_held(self._group, killed=self._outlived)
        if self._outlived:
            _send(self._group, signal.SIGKILL)
        self._streams.end_with_what_is_there()


async def signal_as(user: str | None, group: int, number: int) -> None:
    """Signal a process group that runs as another user, as that user: this program may only signal
    sudo itself, which would leave the user's processes behind. Errors are ignored: the processes
    are then reported as still running."""
    if user is None or os.geteuid() == 0:
        return
    with suppress(TransportError, OSError):
        helper = await _start(image_of(Command(argv=signalling(user, group, number))), None)
        try:
            await helper.wait()
        finally:
            if helper.returncode is None:
                _send(helper.pid, signal.SIGKILL)


async def until_done(work: Coroutine[Any, Any, None]) -> None:
    """Wait for ``work``, ignoring cancellations meanwhile, which could not make it faster."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    task.result()


async def _start(image: Image, streams: Ends | None) -> Process:
    """Start a process in a session of its own, so that its group can be signalled and it has no
    terminal. ``streams`` are closed here once it has them."""
    stdin, stdout, stderr = streams or (DEVNULL, DEVNULL, DEVNULL)
    try:
        return await asyncio.create_subprocess_exec(
            *image.argv,
            stdin=DEVNULL if stdin is None else stdin,
            stdout=stdout,
            stderr=stderr,
            env=image.env,
            cwd=image.cwd,
            start_new_session=True,
        )
    finally:
        if streams is not None:
            streams.close()


def _kill_started(starting: asyncio.Future[Process]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        _send(starting.result().pid, signal.SIGKILL)


async def _ended(starting: asyncio.Future[Process]) -> None:
    await asyncio.wait({starting})
    if starting.exception() is None:
        await starting.result().wait()


def _send(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _is_there(group: int, *, thorough: bool) -> bool:
    if thorough:
        return _runs(group)
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _runs(group: int) -> bool:
    """Whether a process of the group is alive. Zombies do not count: in many containers the first
    process never reaps orphans."""
    if not _is_there(group, thorough=False):
        return False
    try:
        return any(each.alive and each.group == group for each in all_processes().values())
    except OSError:  # a system without /proc
        return True
