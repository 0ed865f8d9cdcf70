"""Processes on this machine.

Each command is a child of this process, in a session and process group of its own. Cancel and
time-out reach the whole group; what left it on purpose (``setsid``, a daemon) lives on. There is no
thread and no helper process per command, and no shell that the command does not ask for.
"""

from __future__ import annotations

import asyncio
import resource
import signal
from contextlib import suppress

from tenure.model.errors import NotStarted, StillRunning, TransportError
from tenure.ports.transport import Command, Endpoint, Exit, Output
from tenure.transports import group
from tenure.transports.become import becoming
from tenure.transports.child import Child
from tenure.transports.ending import end, kill
from tenure.transports.scratch import ExportFile, Scratch
from tenure.transports.spawn import environment, spawn

EXPORTS = "TENURE_OUTPUT"
_FILES_PER_PROCESS = 4  # stdin, stdout, stderr, pidfd
_FILES_FOR_THE_REST = 128
_MOST = 10_000


class LocalTransport:
    """``Transport`` for this machine.

    A command that cannot be started (no such program or directory, not permitted, too much
    environment) is ``NotStarted``. More commands at once than the limit of open files bears wait
    for their turn.
    """

    def __init__(self, *, most_processes: int | None = None) -> None:
        if most_processes is None:
            most_processes = bearable(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._turns = asyncio.Semaphore(most_processes)
        self._scratch = Scratch()

    async def run(self, host: Endpoint, command: Command, output: Output) -> Exit:
        async with self._turns:
            exports = self._exports(command)
            try:
                child = _start(command, exports.path)
                try:
                    await _to_the_end(child, command, output)
                    return _exit(child, exports)
                finally:
                    child.close()
            finally:
                exports.remove()

    async def close(self) -> None:
        self._scratch.close()

    def _exports(self, command: Command) -> ExportFile:
        try:
            return self._scratch.file(for_another_user=command.become is not None)
        except OSError as error:
            raise NotStarted(f"no place for ${EXPORTS}: {error}") from error


def _start(command: Command, exports: str) -> Child:
    env = {**command.env, EXPORTS: exports}
    argv, cwd = command.argv, command.cwd
    if command.become is not None:
        argv, cwd = becoming(command.become, argv, env, cwd), None
    spawned = spawn(argv, environment(env), cwd, feed=bool(command.stdin))
    child = Child(asyncio.get_running_loop(), spawned, command.stdin, command.grace)
    try:
        child.begin()
    except OSError as error:
        group.send(child.pid, signal.SIGKILL)
        spawned.process.wait()
        child.close()
        raise NotStarted(f"{argv[0]} was ended at once, it cannot be watched: {error}") from error
    return child


async def _to_the_end(child: Child, command: Command, output: Output) -> None:
    try:
        await child.hand_over(output)
        if child.outlived:
            await kill(child, command.become)
    except asyncio.CancelledError:
        await end(child, output, command.become)
        raise
    except StillRunning:
        raise
    except Exception:
        await end(child, None, command.become)
        raise
    except BaseException:  # this program is being torn down; nothing can be waited for
        with suppress(PermissionError):
            group.send(child.pid, signal.SIGKILL)
        child.abandon()
        raise


def _exit(child: Child, exports: ExportFile) -> Exit:
    code = child.reap()
    if code is None:
        raise TransportError(
            f"process {child.pid} ended, but another part of this program took its exit status; "
            "SIGCHLD must not be ignored, and nobody may wait for children that are not theirs"
        )
    exported, cut = exports.read()
    if code < 0:
        return Exit(code=128 - code, signal=-code, exported=exported, exported_cut=cut)
    return Exit(code=code, exported=exported, exported_cut=cut)


def bearable(open_files: int) -> int:
    """How many processes at once leave files for the rest of the program."""
    if open_files == resource.RLIM_INFINITY:
        return _MOST
    return min(_MOST, max(1, (open_files - _FILES_FOR_THE_REST) // _FILES_PER_PROCESS))
