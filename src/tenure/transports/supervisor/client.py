"""The runner's side: starts a supervisor, talks to it, and sees each of its tasks through."""

from __future__ import annotations

import array
import asyncio
import errno
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from logging import getLogger
from math import inf
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec import structs

from tenure.model.errors import NotStarted, StillRunning, SupervisorLost, Untrusted
from tenure.ports.execution import Command, LocalTasks, Output
from tenure.system import Account, supervisor_mark
from tenure.transports.children import ChildStarter, signal_as, until_done
from tenure.transports.commands import (
    Image,
    Started,
    Starter,
    environment,
    image_of,
    too_long,
    why_not,
)
from tenure.transports.streams import Ends, Streams, UntilItFails, lay_pipes
from tenure.transports.supervisor import cgroups, processes, protocol
from tenure.transports.supervisor.cgroups import folder_in
from tenure.transports.supervisor.processes import KILL_TIMEOUT_S, Termination
from tenure.transports.supervisor.protocol import Malformed, Spawn, Splitter
from tenure.transports.supervisor.tree import TOKEN_BITS, Marks, by_marks, value_in

_log = getLogger(__name__)

# Starting a supervisor: a bare interpreter that sees no site packages and no settings.

BOOT = """
import sys
sys.path.append(sys.argv[1])
from tenure.transports.supervisor.program import main
main()
"""
_FOR_A_SUPERVISOR = ("LD_LIBRARY_PATH",)
"""What its interpreter may need besides the usual variables. No more: its environment can be read
by tasks until it is hidden."""
_WHERE_TENURE_IS = str(Path(__file__).parents[3])


class Launched(NamedTuple):
    connection: socket.socket
    pid: int


@cache
def possible() -> bool:
    """Whether this system can have supervisors: subreapers and pidfds are Linux's, and there must
    be an interpreter to start, which a program frozen into one file is not."""
    return (
        sys.platform == "linux"
        and bool(sys.executable)
        and not getattr(sys, "frozen", False)
        and find_spec("_ctypes") is not None
        and Path("/proc/self/stat").exists()
        and _pidfds_work()
    )


def _pidfds_work() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # an old kernel, or forbidden by a sandbox
        return False
    return True


def launch(token: int, *, task_groups: bool) -> Launched:
    """The caller takes its status when it ends. ``OSError`` if it cannot be started."""
    ours, theirs = socket.socketpair()
    try:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
            [
                sys.executable,
                *("-I", "-S", "-c", BOOT, _WHERE_TENURE_IS),
                *map(str, (theirs.fileno(), os.getpid(), token, int(task_groups))),
                supervisor_mark(),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment({}, _FOR_A_SUPERVISOR),
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    process.returncode = 0  # or Popen would look for it, and complain that it was not waited for
    ours.setblocking(False)
    return Launched(ours, process.pid)


# What the runner has to say to its supervisor, in order, without ever waiting for it.

_MOST_FRAMES = 64
_A_MOMENT_S = 0.01


class _Waiting:
    __slots__ = ("frame", "given")

    def __init__(self, frame: bytes, given: Ends | None) -> None:
        self.frame = memoryview(frame)
        self.given = given

    def let_go(self) -> None:
        if self.given is not None:
            self.given.close()
            self.given = None


class Sender:
    """Used from any thread: what says that a lease holds must not wait for a busy loop."""

    def __init__(self, loop: AbstractEventLoop, connection: socket.socket) -> None:
        self._loop = loop
        self._socket = connection
        self._lock = threading.Lock()
        self._queue: deque[_Waiting] = deque()
        self._posted = False
        self._writing = False
        self._closed = False

    @property
    def connected(self) -> bool:
        return not self._closed

    def send(self, frame: bytes, given: Ends | None = None) -> bool:
        """Now, or as soon as there is room. ``given`` travels with it and is closed here then.
        False: the other side is gone, and did not get it."""
        with self._lock:
            self._append(frame, given)
            self._flush()
            return not self._closed

    def post(self, frame: bytes) -> None:
        """With what is sent next, at the latest in the loop's next round. From the loop only."""
        with self._lock:
            self._append(frame, None)
            if self._posted or self._loop.is_closed():
                return
            self._posted = True
        self._loop.call_soon(self._send_posted)

    def shut(self) -> None:
        """Nothing comes any more; the other side hears that after all that was sent."""
        with self._lock:
            self._flush()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Nothing that waits will be sent."""
        with self._lock:
            self._closed = True
            self._drop()
            if self._writing and not self._loop.is_closed():
                self._loop.remove_writer(self._socket)

    def _append(self, frame: bytes, given: Ends | None) -> None:
        self._queue.append(_Waiting(frame, given))
        if self._closed:
            self._drop()

    def _send_posted(self) -> None:
        with self._lock:
            self._posted = False
            self._flush()

    def _flush(self) -> None:
        while self._queue:
            batch = self._batch()
            try:
                sent = self._socket.sendmsg(
                    [each.frame for each in batch], _beside(batch[-1].given), socket.MSG_NOSIGNAL
                )
            except BlockingIOError:
                self._in_loop(self._wait_for_room)
                return
            except OSError as error:
                if error.errno == errno.ETOOMANYREFS:  # too many descriptors are on their way
                    self._in_loop(self._try_again)
                else:  # the other side is gone; the reading end will notice
                    self._closed = True
                    self._drop()
                return
            batch[-1].let_go()  # they went with the first byte
            self._strike_out(sent)

    def _batch(self) -> list[_Waiting]:
        """As much as one call may carry: descriptors of one task, with the last frame."""
        batch: list[_Waiting] = []
        for each in self._queue:
            batch.append(each)
            if each.given is not None or len(batch) == _MOST_FRAMES:
                break
        return batch

    def _strike_out(self, sent: int) -> None:
        while sent:
            first = self._queue[0]
            if sent < len(first.frame):
                first.frame = first.frame[sent:]
                return
            sent -= len(first.frame)
            self._queue.popleft()

    def _drop(self) -> None:
        while self._queue:
            self._queue.popleft().let_go()

    # A full connection.

    def _in_loop(self, act: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: there is nothing to wait in
            self._loop.call_soon_threadsafe(act)

    def _wait_for_room(self) -> None:
        if not self._writing and not self._closed:
            self._writing = True
            self._loop.add_writer(self._socket, self._room)

    def _room(self) -> None:
        self._loop.remove_writer(self._socket)
        self._writing = False
        self._send_posted()

    def _try_again(self) -> None:
        self._loop.call_later(_A_MOMENT_S, self._send_posted)


def _beside(given: Ends | None) -> list[tuple[int, int, array.array[int]]]:
    if given is None:
        return []
    fds = array.array("i", [given.stdout, given.stderr])
    if given.stdin is not None:
        fds.append(given.stdin)
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)]


# Ending what a supervisor that was killed left behind. Without it only groups and marks tell whose
# a process is, and how its leader ended is not known, so there is no grace to wait for.

_A_WHILE_S = 0.1


async def rescue(marks: Marks, folder: str, tasks: Iterable[int]) -> dict[int, list[int]]:
    """For each task what could not be ended: empty when everything is gone. ``folder``: where the
    groups of the tasks are, if they have some.

    Zombies say nothing here: they belong to the machine's first process, which may never reap. So
    a task is gone when two looks in a row found nothing of it.
    """
    loop = asyncio.get_running_loop()
    ending = {task: Termination(loop.time(), 0.0) for task in tasks}
    groups = {task: f"{folder}/{task}" for task in ending}
    for group in groups.values():
        cgroups.freeze(group)
    unseen: set[int] = set()
    left: dict[int, list[int]] = {}
    while ending:
        now = loop.time()
        try:
            present = processes.all_processes()
            families = by_marks(present, marks.whose)
            inside = {each: cgroups.processes_in(groups[each], present) for each in ending}
        except OSError:  # nothing left to look with
            await asyncio.sleep(_A_WHILE_S)  # noqa: TID251 - see below
            continue
        for task, termination in list(ending.items()):
            found = {process.pid: process for process in families.get(task, ())}
            found |= {pid: present[pid] for pid in inside[task] if pid in present}
            family = [process for process in found.values() if process.alive]
            for process, number in termination.step(now, family):
                processes.send(process, number)
            if family:
                unseen.discard(task)
            elif task not in unseen:
                unseen.add(task)
                continue
            if termination.over(now, family, hidden=False) is not None:
                left[task] = [process.pid for process in family]
                cgroups.thaw(groups[task])
                del ending[task]
        next_look = min((termination.look_at for termination in ending.values()), default=0.0)
        await asyncio.sleep(max(0.0, next_look - loop.time()))  # noqa: TID251 - /proc sends no news
    return left


# The connection to a supervisor, and what is done when that is lost.

_READY_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 15.0
"""Seconds a supervisor has to end what is left and then itself."""
_CHUNK = 64 * 1024


class Unsupervised(Exception):
    """This system allows no supervisor."""


class Disconnected(Exception):
    """The supervisor is gone, and never heard of this task."""


class Listener(Protocol):
    """Hears what becomes of a task."""

    mark: bytes

    def hear(self, kind: int, body: bytes) -> None: ...

    def lose(self, why: str) -> None:
        """The supervisor is gone. What it left behind is being ended; ``settle`` follows."""
        ...

    def settle(self, left: list[int]) -> None:
        """It has been ended, but for these processes."""
        ...


class Connection:
    """One supervisor, from its start to its end; for one event loop of one process."""

    def __init__(self, loop: AbstractEventLoop, *, task_groups: bool) -> None:
        """``OSError`` if it cannot be started."""
        self._loop = loop
        self._maker = os.getpid()
        self._token = secrets.randbits(TOKEN_BITS)
        self._socket, self.pid = launch(self._token, task_groups=task_groups)
        self._groups = folder_in(cgroups.own_group() or "", self.pid)
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except OSError:
            self._socket.close()
            _reap_later(self.pid)
            raise
        loop.add_reader(self._pidfd, self._note_end)
        self._sender = Sender(loop, self._socket)
        self._splitter = Splitter(protocol.MOST_ANSWERED)
        self._tasks: dict[int, Listener] = {}
        self._count = 0
        self._open = True
        self._closing = False
        self._ready: asyncio.Future[None] = loop.create_future()
        self._ended = asyncio.Event()
        self._rescuing: asyncio.Task[None] | None = None
        self._said = ""
        loop.add_reader(self._socket, self._read)

    @classmethod
    async def open(cls, *, task_groups: bool) -> Connection:
        """``Unsupervised`` if this system does not allow it, ``NotStarted`` if it failed."""
        try:
            connection = cls(asyncio.get_running_loop(), task_groups=task_groups)
        except OSError as error:
            raise NotStarted(f"no supervisor for local tasks could be started: {error}") from error
        try:
            async with asyncio.timeout(_READY_TIMEOUT_S):
                await connection._ready
        except BaseException as error:
            await connection.close()
            if isinstance(error, TimeoutError):
                raise NotStarted("the supervisor of local tasks does not answer") from error
            raise
        return connection

    def serves(self, loop: AbstractEventLoop) -> bool:
        return self._open and loop is self._loop and os.getpid() == self._maker

    # Asking.

    def spawn(self, listener: Listener, order: bytes, given: Ends) -> int:
        """The number of the task. ``given`` is closed here as soon as it has been sent."""
        self._count += 1
        if not self._sender.send(protocol.frame(protocol.SPAWN, self._count, order), given):
            while self._open:  # what it said before counts
                self._read()
            raise Disconnected
        self._tasks[self._count] = listener
        self._rouse()
        return self._count

    def send(self, kind: int, task: int = 0, body: bytes = b"") -> None:
        """From any thread."""
        self._sender.send(protocol.frame(kind, task, body))
        self._rouse()

    def release(self, task: int) -> None:
        """It is not listened to any more."""
        del self._tasks[task]
        self._sender.post(protocol.frame(protocol.RELEASE, task))

    def _rouse(self) -> None:
        """A task can stop its supervisor (``kill -STOP $PPID``), which then hears nothing. One that
        is not stopped does not notice this."""
        if not self._ended.is_set():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)

    # Its end.

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
                    async with asyncio.timeout(_END_TIMEOUT_S):
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
            for listener in self._tasks.values():
                listener.lose(why)
            self._rescuing = self._loop.create_task(self._rescue())

    def drop(self) -> None:
        """Its loop is closed, or it belongs to the process we were forked from. It notices by
        itself when the connection is not held any more."""
        if self._open:
            self._open = False
            self._socket.close()
            if os.getpid() == self._maker:
                _reap_later(self.pid)

    async def _rescue(self) -> None:
        await self._ended.wait()
        marks = Marks(self._token)
        for number, listener in self._tasks.items():
            marks.add(number, listener.mark)
        left = await rescue(marks, self._groups, list(self._tasks))
        for number, listener in list(self._tasks.items()):
            listener.settle(left[number])

    def _note_end(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        _reap(self.pid)
        self._ended.set()

    # Hearing.

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
        if kind == protocol.READY:
            self._ready.set_result(None)
        elif kind == protocol.FAILED:
            self._said = body.decode(errors="replace")
        elif task in self._tasks:  # else it was released meanwhile
            self._tasks[task].hear(kind, body)


def _reap(pid: int) -> None:
    with suppress(ChildProcessError):  # the program ignores SIGCHLD
        os.waitpid(pid, 0)


def _reap_later(pid: int) -> None:
    """It shall not stay a zombie when it ends."""
    threading.Thread(target=_reap, args=(pid,), daemon=True).start()


# A task of the supervisor, as the runner sees it.

_ANSWER_TIMEOUT_S = KILL_TIMEOUT_S + 5.0
"""Seconds after a KILL in which the supervisor must have said how it went."""


def grace_of(command: Command) -> float:
    """Its grace; none, if that is no number of seconds anybody could wait."""
    return max(0.0, command.grace)


class RemoteTask:
    def __init__(
        self,
        loop: AbstractEventLoop,
        connection: Connection,
        command: Command,
        image: Image,
        pipes: Ends,
    ) -> None:
        self.mark = value_in(image.env)
        self._loop = loop
        self._connection = connection
        self._number = 0
        self._image = image
        self._become = command.become
        self._grace = grace_of(command)
        self._streams = Streams(loop, pipes, command.stdin, self._grace, self._held_open)
        self._pid: int | None = None
        self._status: int | None = None
        self._refusal: NotStarted | Untrusted | None = None
        self._why_lost: str | None = None
        self._untrusted = False
        self._dying = False
        self._only_held = False
        self._left: list[int] | None = None
        self._news: asyncio.Future[None] | None = None

    def begin(self, order: bytes, given: Ends) -> None:
        """``Disconnected``: it was not begun, and nothing stays open."""
        try:
            self._number = self._connection.spawn(self, order, given)
        except Disconnected:
            self._streams.close()
            raise
        try:
            self._streams.begin()
        except OSError as error:
            self.kill()
            self.close()
            raise NotStarted(
                f"{self._name} was ended at once, it cannot be read: {error}"
            ) from error

    # What the runner does.

    async def see_through(self, output: Output) -> int:
        await self._streams.hand_over(output)
        if self._dying or self._why_lost is not None:
            await self._until_settled()
        if self._refusal is not None:
            raise self._refusal
        if self._untrusted:
            raise Untrusted(
                f"{self._name} was ended: the lease of its run was not renewed in time, so another "
                "owner may have the run"
            )
        if self._status is None:
            raise SupervisorLost(
                f"{self._name} was ended with its supervisor ({self._why_lost}); how it would have "
                "ended is not known"
            )
        return os.waitstatus_to_exitcode(self._status)

    async def end(self, output: Output | None) -> None:
        if self._is_settled:
            return
        self._ask_to_end(self._grace)
        try:
            async with asyncio.timeout(self._grace):
                await self._signal_as_its_user(signal.SIGTERM)
                await self._streams.hand_over(UntilItFails(output))
                await self._until_settled()
        except (TimeoutError, asyncio.CancelledError):
            await until_done(self._end_now())

    def kill(self) -> None:
        self._ask_to_end(0.0)

    def close(self) -> None:
        self._streams.close()
        self._connection.release(self._number)

    async def _end_now(self) -> None:
        self._ask_to_end(0.0)
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                await self._signal_as_its_user(signal.SIGKILL)
                await self._until_settled()
        except TimeoutError:
            self._connection.lose("it does not answer")
            await self._until_settled()

    def _ask_to_end(self, grace: float) -> None:
        self._dying = True
        self._connection.send(protocol.END, self._number, protocol.end(grace))

    async def _signal_as_its_user(self, number: int) -> None:
        if self._become is None:
            return
        while self._pid is None and not self._is_settled:
            await self._next_news()
        if self._pid is not None:
            await signal_as(self._become, self._pid, number)

    def _held_open(self) -> None:
        if self._dying:
            return  # what holds them is being ended already
        self._dying = self._only_held = True
        self._connection.send(protocol.END_GROUP, self._number)

    @property
    def _is_settled(self) -> bool:
        return self._left is not None or self._refusal is not None

    async def _until_settled(self) -> None:
        while not self._is_settled:
            await self._next_news()
        if self._left:
            raise StillRunning(
                f"{self._name}, or what it started, was told to end; this could not be killed, or "
                f"may be another task's: ps -p {','.join(map(str, self._left))}"
            )

    async def _next_news(self) -> None:
        self._news = self._loop.create_future()
        await self._news

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    @property
    def _name(self) -> str:
        program = os.fsdecode(self._image.argv[0])
        return program if self._pid is None else f"{program} (process {self._pid})"

    # What it hears from its supervisor.

    def hear(self, kind: int, body: bytes) -> None:
        if kind == protocol.EXITED:
            self._status = protocol.read_number(body)
            self._streams.note_end()
        elif kind == protocol.LEADER:
            self._pid = protocol.read_number(body)
            self._tell()
        elif kind == protocol.REFUSED:
            self._refusal = self._refused(*protocol.read_refusal(body))
            self._finish()
        elif kind == protocol.UNTRUSTED:
            self._untrusted = self._dying = True
        elif kind == protocol.GONE:
            if self._only_held:
                self._streams.warn_if_held(self._pid, killed=protocol.read_number(body) > 0)
            self.settle([])
        elif kind == protocol.LEFT:
            self.settle(protocol.read_numbers(body))
        else:
            raise Malformed(f"a frame of kind {kind}")

    def lose(self, why: str) -> None:
        self._why_lost = why

    def settle(self, left: list[int]) -> None:
        self._left = left
        self._finish()

    def _finish(self) -> None:
        self._streams.end_with_what_is_there()
        self._tell()

    def _refused(self, number: int, what: int) -> NotStarted | Untrusted:
        if what == protocol.TO_TRUST:
            return Untrusted(
                f"{os.fsdecode(self._image.argv[0])} was not started: the lease of its run was not "
                "renewed in time, so another owner may have the run"
            )
        name = self._image.cwd if what == protocol.TO_ENTER else None
        error = OSError(number, os.strerror(number), name)
        return NotStarted(why_not(error, self._image))


# Processes as tasks of a supervisor. The package's head tells what that is good for.

_RUN = "TENURE_RUN_ID"
_TO_DIE_S = 2.0
"""Seconds in which a KILL has done its work; they are part of the margin."""
_ALWAYS = (0, 0.0)
_TRIES = 3


class SupervisedStarter:
    """Starts its supervisor with the first task, and a new one when that was lost. Where the
    system does not allow one, tasks are children of this program, and a warning says so."""

    def __init__(self, tasks: LocalTasks = LocalTasks()) -> None:
        self._tasks = tasks
        self._account = Account.named(tasks.user) if tasks.user is not None else None
        self._connections: dict[AbstractEventLoop, Connection] = {}
        self._opening: dict[AbstractEventLoop, asyncio.Task[Connection]] = {}
        self._windows: dict[str, tuple[int, float]] = {}
        self._instead: Starter | None = None

    async def start(self, command: Command) -> Started:
        for _ in range(_TRIES):
            if self._instead is not None:
                return await self._instead.start(command)
            try:
                return self._entrust(await self._connect(), command)
            except Disconnected:
                continue
            except Unsupervised as error:
                self._do_without(error)
        raise NotStarted(
            f"{command.argv[0]} was not started: its supervisor was killed {_TRIES} times before "
            "it could; look for what kills processes here"
        )

    async def close(self) -> None:
        here = asyncio.get_running_loop()
        opening = self._opening.get(here)
        if opening is not None:
            await asyncio.wait([opening])
        while self._connections:
            loop, connection = self._connections.popitem()
            if loop is here:
                await connection.close()
            else:
                connection.drop()

    def _do_without(self, why: Unsupervised) -> None:
        if self._instead is None:
            self._instead = ChildStarter(self._tasks)
            _log.warning(
                "local tasks are not supervised here (%s): what leaves its process group, or "
                "outlives this program when that is killed, is not ended",
                why,
            )

    # Trust.

    def trust(self, run_id: str, until: float, margin: float) -> None:
        if until == inf:
            window = _ALWAYS
        else:
            # In this order: whatever passes between the two readings shortens the trust.
            boot, now = time.clock_gettime_ns(time.CLOCK_BOOTTIME), time.monotonic()
            window = (max(1, boot + int((until - now) * 1e9)), max(0.0, margin - _TO_DIE_S))
        self._windows[run_id] = window
        if self._connections:
            body = protocol.trust(_key(run_id), *window)
            for connection in list(self._connections.values()):
                connection.send(protocol.TRUST, body=body)

    def forget(self, run_id: str) -> None:
        self._windows.pop(run_id, None)

    # Starting.

    def _entrust(self, connection: Connection, command: Command) -> RemoteTask:
        account = self._account
        if account is not None:
            home = os.path.join(account.home, command.cwd or "")
            env = {**account.environment, **command.env}
            command = structs.replace(command, cwd=home, env=env)
        image = image_of(command, self._tasks.pass_env)
        if image.cwd is None or not image.cwd.startswith(b"/"):
            image = image._replace(cwd=_here(image.cwd))
        order = self._order(command, image)
        text = order.encode()
        if len(text) > protocol.MOST_ASKED:
            raise NotStarted(too_long(image))
        try:
            pipes, given = lay_pipes(feed=bool(command.stdin))
        except OSError as error:
            raise NotStarted(why_not(error, image)) from error
        task = RemoteTask(asyncio.get_running_loop(), connection, command, image, pipes)
        task.begin(text, given)
        window = self._windows.get(command.env.get(_RUN, ""), _ALWAYS)
        if window != (order.until, order.late_grace):
            # Another thread prolonged the trust before the supervisor knew of this task.
            connection.send(protocol.TRUST, body=protocol.trust(order.run, *window))
        return task

    def _order(self, command: Command, image: Image) -> Spawn:
        run_id = command.env.get(_RUN, "")
        until, late_grace = self._windows.get(run_id, _ALWAYS)
        return Spawn(
            argv=image.argv,
            env=image.env,
            cwd=image.cwd or b"/",
            feed=bool(command.stdin),
            grace=grace_of(command),
            run=_key(run_id),
            until=until,
            late_grace=late_grace,
            ids=b"" if self._account is None else _ids(self._account),
        )

    # The supervisor.

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        connection = self._connections.get(loop)
        if connection is not None and connection.serves(loop):
            return connection
        opening = self._opening.get(loop)
        if opening is None:
            opening = self._opening[loop] = loop.create_task(self._open(loop))
            opening.add_done_callback(_heard)
        return await asyncio.shield(opening)

    async def _open(self, loop: AbstractEventLoop) -> Connection:
        try:
            for other, connection in list(self._connections.items()):
                if other.is_closed() or not connection.serves(other):
                    del self._connections[other]
                    connection.drop()
            connection = self._connections[loop] = await Connection.open(
                task_groups=self._tasks.groups
            )
        finally:
            del self._opening[loop]
        return connection


def _ids(account: Account) -> bytes:
    return " ".join(map(str, (account.uid, account.gid, *account.groups))).encode()


def _key(run_id: str) -> bytes:
    return run_id.encode("utf-8", "surrogatepass")


def _here(folder: bytes | None) -> bytes:
    """The supervisor stands elsewhere: what is relative here must be absolute there."""
    with suppress(OSError):
        return os.path.join(os.getcwdb(), folder or b"")
    return folder or b"/"


def _heard(opening: asyncio.Task[Connection]) -> None:
    """All that waited may have been cancelled; then its error is not looked at."""
    if not opening.cancelled():
        opening.exception()
