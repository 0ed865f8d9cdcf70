"""The runner's connection to its supervisor, and what is done when that is lost."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from asyncio import AbstractEventLoop
from contextlib import suppress
from logging import getLogger
from typing import Protocol

from tenure.model.errors import NotStarted
from tenure.transports.plumbing import Ends
from tenure.transports.reaping import leave_behind, watch
from tenure.transports.supervisor import cgroups, frames
from tenure.transports.supervisor.frames import Malformed, Splitter
from tenure.transports.supervisor.launch import launch
from tenure.transports.supervisor.marks import TOKEN_BITS, Marks
from tenure.transports.supervisor.rescue import rescue
from tenure.transports.supervisor.sender import Sender
from tenure.transports.supervisor.task_groups import folder_in

_log = getLogger(__name__)

_TO_BE_READY = 60.0
_TO_END = 15.0
"""Seconds a supervisor has to end what is left and then itself."""
_CHUNK = 64 * 1024


class Unsupervised(Exception):
    """This system lets nobody supervise."""


class Disconnected(Exception):
    """The supervisor is gone, and never heard of this task."""


class Answered(Protocol):
    """Who asked for a task and hears what becomes of it."""

    mark: bytes

    def hear(self, kind: int, body: bytes) -> None: ...

    def lose(self, why: str) -> None:
        """The supervisor is gone. What it left behind is being ended; ``settle`` follows."""
        ...

    def settle(self, left: list[int]) -> None:
        """It has been ended, but for these processes."""
        ...


class Link:
    """One supervisor, from its start to its end; for one event loop of one process."""

    def __init__(self, loop: AbstractEventLoop, *, task_groups: bool) -> None:
        """``OSError`` if it cannot be started."""
        self._loop = loop
        self._maker = os.getpid()
        self._token = secrets.randbits(TOKEN_BITS)
        self._socket, self.pid = launch(self._token, task_groups=task_groups)
        self._groups = folder_in(cgroups.own_group() or "", self.pid)
        try:
            self._watch = watch(loop, self.pid, self._note_end)
        except OSError:
            self._socket.close()
            leave_behind(self.pid)
            raise
        self._sender = Sender(loop, self._socket)
        self._splitter = Splitter(frames.MOST_ANSWERED)
        self._tasks: dict[int, Answered] = {}
        self._count = 0
        self._open = True
        self._closing = False
        self._ready: asyncio.Future[None] = loop.create_future()
        self._ended = asyncio.Event()
        self._rescuing: asyncio.Task[None] | None = None
        self._said = ""
        loop.add_reader(self._socket, self._read)

    @classmethod
    async def open(cls, *, task_groups: bool) -> Link:
        """``Unsupervised`` if this system does not allow it, ``NotStarted`` if it failed."""
        try:
            link = cls(asyncio.get_running_loop(), task_groups=task_groups)
        except OSError as error:
            raise NotStarted(f"no supervisor for local tasks could be started: {error}") from error
        try:
            async with asyncio.timeout(_TO_BE_READY):
                await link._ready
        except BaseException as error:
            await link.close()
            if isinstance(error, TimeoutError):
                raise NotStarted("the supervisor of local tasks does not answer") from error
            raise
        return link

    def serves(self, loop: AbstractEventLoop) -> bool:
        return self._open and loop is self._loop and os.getpid() == self._maker

    # Asking

    def spawn(self, who: Answered, order: bytes, given: Ends) -> int:
        """The number of the task. ``given`` is closed here as soon as it has been sent."""
        self._count += 1
        if not self._sender.send(frames.frame(frames.SPAWN, self._count, order), given):
            while self._open:  # what it said before counts
                self._read()
            raise Disconnected
        self._tasks[self._count] = who
        self._rouse()
        return self._count

    def send(self, kind: int, task: int = 0, body: bytes = b"") -> None:
        """From any thread."""
        self._sender.send(frames.frame(kind, task, body))
        self._rouse()

    def release(self, task: int) -> None:
        """Nobody wants to hear of it any more."""
        del self._tasks[task]
        self._sender.post(frames.frame(frames.RELEASE, task))

    def _rouse(self) -> None:
        """A task can stop its supervisor (``kill -STOP $PPID``), which then hears nothing. One that
        is not stopped does not notice this."""
        if not self._ended.is_set():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)

    # Its end

    async def close(self) -> None:
        """Let it end by itself, and with it everything that was not released. Cancelled, it is
        killed."""
        if os.getpid() != self._maker:
            self.drop()
            return
        if self._open:
            self._closing = True
            self._sender.shut()
            self._rouse()
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_TO_END):
                        await self._ended.wait()
            finally:
                self.lose("the transport was closed")
        if self._rescuing is not None:
            await self._rescuing
        await self._ended.wait()
        cgroups.clear(self._groups)  # a supervisor that was killed could not

    def lose(self, why: str) -> None:
        """Kill it, if it lives, and end its tasks without it."""
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._socket)
        self._sender.close()
        self._socket.close()
        if not self._ended.is_set():
            os.kill(self.pid, signal.SIGKILL)
        if not self._ready.done():
            self._ready.set_exception(
                Unsupervised(self._said)
                if self._said
                else NotStarted(f"the supervisor of local tasks ended before it began: {why}")
            )
            self._ready.exception()
        if self._tasks:
            _log.error("the supervisor of local tasks (%d) is gone: %s", len(self._tasks), why)
            for who in self._tasks.values():
                who.lose(why)
            self._rescuing = self._loop.create_task(self._rescue())

    def drop(self) -> None:
        """Its loop is closed, or it belongs to the process we were forked from. It notices by
        itself when nobody holds the connection any more."""
        if self._open:
            self._open = False
            self._socket.close()
            if os.getpid() == self._maker:
                leave_behind(self.pid)

    async def _rescue(self) -> None:
        await self._ended.wait()
        marks = Marks(self._token)
        for number, who in self._tasks.items():
            marks.add(number, who.mark)
        left = await rescue(marks, self._groups, list(self._tasks))
        for number, who in list(self._tasks.items()):
            who.settle(left[number])

    def _note_end(self) -> None:
        self._watch.reap()
        self._ended.set()

    # Hearing

    def _read(self) -> None:
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:  # a false alarm
            if not self._sender.connected:
                self.lose("it closed the connection")
            return
        except OSError as error:
            self.lose(str(error))
            return
        if not data:
            self._loop.remove_reader(self._socket)
            if not self._closing:  # else it is about to end, as it was told
                self.lose(self._said or "it was killed")
            return
        try:
            for kind, task, body in self._splitter.split(data):
                self._hear(kind, task, body)
        except Malformed as error:
            self.lose(f"it does not make sense: {error}")

    def _hear(self, kind: int, task: int, body: bytes) -> None:
        if kind == frames.READY:
            self._ready.set_result(None)
        elif kind == frames.FAILED:
            self._said = body.decode(errors="replace")
        elif task in self._tasks:  # else it was released meanwhile
            self._tasks[task].hear(kind, body)
