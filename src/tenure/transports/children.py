"""Processes as children of this program: no helper process and no thread per command.

Cancel and time-out reach the whole process group; what left it on purpose (``setsid``, a daemon)
lives on, and so does everything when this program is killed. That is why they are supervised where
the system allows it.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress

from tenure.model.errors import NotStarted, TransportError
from tenure.ports.execution import Command, Output
from tenure.transports import ending, group
from tenure.transports.child import Child
from tenure.transports.spawn import image_of, spawn


class ChildStarter:
    async def start(self, command: Command) -> StartedChild:
        process, pipes = spawn(image_of(command), feed=bool(command.stdin))
        loop = asyncio.get_running_loop()
        child = Child(loop, process, pipes, command.stdin, command.grace)
        try:
            child.begin()
        except OSError as error:
            group.send(child.pid, signal.SIGKILL)
            process.wait()
            child.close()
            raise NotStarted(
                f"{command.argv[0]} was ended at once, it cannot be watched: {error}"
            ) from error
        return StartedChild(child, command.become)

    async def close(self) -> None:
        """Nothing is held."""


class StartedChild:
    def __init__(self, child: Child, become: str | None) -> None:
        self._child = child
        self._become = become
        self._over = False

    async def see_through(self, output: Output) -> int:
        child = self._child
        await child.streams.hand_over(output)
        if child.outlived:
            await ending.kill(child, self._become)
        self._over = True
        code = child.reap()
        if code is None:
            raise TransportError(
                f"process {child.pid} ended, but another part of this program took its exit "
                "status; SIGCHLD must not be ignored, and nobody may wait for children that are "
                "not theirs"
            )
        return code

    async def end(self, output: Output | None) -> None:
        if not self._over:
            await ending.end(self._child, output, self._become)

    def kill(self) -> None:
        with suppress(PermissionError):
            group.send(self._child.pid, signal.SIGKILL)
        self._child.abandon()

    def close(self) -> None:
        self._child.close()
