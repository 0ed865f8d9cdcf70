"""The transport for this machine: each process in a session of its own, without a shell unless the
command starts one. Their parent, which ends them, is this program (``children``) or its supervisor
(``supervisor``)."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable

from msgspec import structs

from tenure.model.errors import NotStarted, StillRunning
from tenure.ports.execution import Command, Endpoint, Exit, Output, TrustWindows
from tenure.transports.children import ChildStarter
from tenure.transports.commands import Started, Starter, becoming
from tenure.transports.scratch import ExportFile, Scratch

EXPORTS = "TENURE_OUTPUT"
_FILES_PER_PROCESS = 4  # stdin, stdout, stderr, pidfd
_RESERVED_FILES = 128
_MAX_PROCESSES = 10_000


class LocalTransport:
    """``Transport`` for this machine.

    A command that cannot be started (no such program or directory, not permitted, too much
    environment) raises ``NotStarted``. Commands beyond the limit of open files wait for a slot.
    """

    def __init__(
        self,
        starter: Starter | None = None,
        *,
        most_processes: int | None = None,
        another_user: bool = False,
    ) -> None:
        """``another_user``: the starter's processes are not this program's user's."""
        if most_processes is None:
            most_processes = max_processes(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._starter = starter or ChildStarter()
        self._windows = self._starter if isinstance(self._starter, TrustWindows) else None
        self._turns = asyncio.Semaphore(most_processes)
        self._scratch = Scratch()
        self._another_user = another_user

    async def run(self, host: Endpoint, command: Command, output: Output) -> Exit:
        return await self.run_in_turn(host, command, output, _ignore)

    async def run_in_turn(
        self, host: Endpoint, command: Command, output: Output, begins: Callable[[], None]
    ) -> Exit:
        async with self._turns:
            begins()
            exports = self._exports(command)
            try:
                started = await self._starter.start(_to_start(command, exports.path))
                try:
                    code = await _to_the_end(started, output)
                finally:
                    started.close()
                return _exit(code, exports)
            finally:
                exports.remove()

    def trust(self, run_id: str, until: float, margin: float) -> None:
        if self._windows is not None:
            self._windows.trust(run_id, until, margin)

    def forget(self, run_id: str) -> None:
        if self._windows is not None:
            self._windows.forget(run_id)

    async def close(self) -> None:
        try:
            await self._starter.close()
        finally:
            self._scratch.close()

    def _exports(self, command: Command) -> ExportFile:
        try:
            others = self._another_user or command.become is not None
            return self._scratch.file(for_another_user=others)
        except OSError as error:
            raise NotStarted(f"no place for ${EXPORTS}: {error}") from error


def _ignore() -> None: ...


def _to_start(command: Command, exports: str) -> Command:
    env = {**command.env, EXPORTS: exports}
    if command.become is None:
        return structs.replace(command, env=env)
    argv = becoming(command.become, command.argv, env, command.cwd)
    return structs.replace(command, argv=argv, env=env, cwd=None)


async def _to_the_end(started: Started, output: Output) -> int:
    try:
        return await started.see_through(output)
    except asyncio.CancelledError:
        await started.end(output)
        raise
    except StillRunning:
        raise
    except Exception:
        await started.end(None)
        raise
    except BaseException:  # this program is being torn down
        started.kill()
        raise


def _exit(code: int, exports: ExportFile) -> Exit:
    exported, cut = exports.read()
    if code < 0:
        return Exit(code=128 - code, signal=-code, exported=exported, exported_cut=cut)
    return Exit(code=code, exported=exported, exported_cut=cut)


def max_processes(open_files: int) -> int:
    """How many concurrent processes a limit of open files allows."""
    if open_files == resource.RLIM_INFINITY:
        return _MAX_PROCESSES
    return min(_MAX_PROCESSES, max(1, (open_files - _RESERVED_FILES) // _FILES_PER_PROCESS))
