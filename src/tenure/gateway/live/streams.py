"""Growing logs that many viewers share (journal, output), and sending one to a viewer as
server-sent events.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from asyncio import FIRST_COMPLETED
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from operator import itemgetter
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakSet

import msgspec
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from tenure.aio import ENDLESS, until_answered
from tenure.gateway.answers import STEADY
from tenure.gateway.problems import problem_of
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.model.status import ENDED_HOST, TERMINAL_RUN
from tenure.model.update import Position, RecordedEvent
from tenure.ports.store import EventLog, LogKey, LogSlice, LogStore, RunStateStore
from tenure.wire.answers import shown_as
from tenure.wire.masking import is_begun, readable
from tenure.wire.output import Interrupted, Output, OutputEnded, RunEnded

FrameK = TypeVar("FrameK")

SSE_MEDIA_TYPE = "text/event-stream"
OPENING = b"retry: 1000\n\n"
"""Browsers reconnect after a second."""
HEARTBEAT = b": still here\n\n"


class Frame(NamedTuple, Generic[FrameK]):
    """``place``: the position after this frame."""

    place: FrameK
    data: bytes


def message(value: Any, *, kind: str | None = None, place: object = None) -> bytes:
    """One server-sent event. JSON has no line breaks of its own, so the data is one line. Without
    ``kind`` it is a browser's ``message`` event."""
    head = b"" if place is None else b"id: %b\n" % str(place).encode()
    if kind is not None:
        head += b"event: %b\n" % kind.encode()
    return b"%bdata: %b\n\n" % (head, msgspec.json.encode(value))


K = TypeVar("K", bound=Any)
"""A position: comparable, later ones are greater."""

MAX_KEPT_BYTES = 1 << 20
"""Kept for all viewers of one log; a viewer further behind reads from the store."""
CHUNK = 64 << 10
"""Bytes passed to a viewer at once, unless a single frame is larger."""
_place = itemgetter(0)


class LogPart(NamedTuple, Generic[K]):
    """Data after some position, up to ``place``; may be empty."""

    place: K
    data: bytes


class GrowingLog(ABC, Generic[K]):
    """A log shared by viewers. ``place``: how far it was read. ``kept_behind``: everything after it
    is kept."""

    def __init__(self, place: K) -> None:
        self.place = place
        self.kept_behind = place
        self.over = False
        """Nothing more will come."""
        self.failure: Exception | None = None
        self.viewers = 0
        self._frames: list[Frame[K]] = []
        self._bytes = 0
        self._news = asyncio.Event()

    @property
    def still(self) -> bool:
        """Whether it is known that there is nothing new."""
        return False

    @abstractmethod
    async def look(self) -> None:
        """Read once what is new, and ``publish`` it."""

    def fail(self, error: Exception) -> None:
        """End all viewers with ``error``."""
        self.failure = error
        self.tell()

    def end(self) -> None:
        self.over = True
        self.tell()

    def publish(self, frames: Sequence[Frame[K]]) -> None:
        if not frames:
            return
        self._frames += frames
        self._bytes += sum(len(frame.data) for frame in frames)
        self.place = frames[-1].place
        self._forget()
        self.tell()

    def tell(self) -> None:
        """Wake all waiting viewers."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def news(self) -> None:
        await self._news.wait()

    def behind(self, place: K) -> LogPart[K]:
        """The kept data after it, as much as may be passed on at once."""
        start = end = bisect_right(self._frames, place, key=_place)
        size = 0
        while end < len(self._frames) and (size == 0 or size < CHUNK):
            size += len(self._frames[end].data)
            end += 1
        chosen = self._frames[start:end]
        if not chosen:
            return LogPart(place, b"")
        return LogPart(chosen[-1].place, b"".join(frame.data for frame in chosen))

    def _forget(self) -> None:
        """Drop the oldest frames; the newest stays, however large."""
        gone = 0
        while self._bytes > MAX_KEPT_BYTES and gone < len(self._frames) - 1:
            self._bytes -= len(self._frames[gone].data)
            gone += 1
        if gone:
            self.kept_behind = self._frames[gone - 1].place
            del self._frames[:gone]


class WatchedLog(GrowingLog[K]):
    """A log with an end that can be read from the store at any position. ``name`` identifies it in
    the store's queries for sizes."""

    def __init__(self, name: Hashable, place: K) -> None:
        super().__init__(place)
        self.name = name
        self.size: int | None = None
        """Its present size in the store's own measure, if known (``feed.Survey``)."""
        self.size_seen: int | None = None
        """Its size when everything was read."""
        self._reading: dict[K, asyncio.Task[LogPart[K]]] = {}

    @property
    def still(self) -> bool:
        return self.size is not None and self.size == self.size_seen

    @abstractmethod
    async def read(self, behind: K) -> LogPart[K]:
        """Read from the store after a position that is not kept."""

    @abstractmethod
    def last_words(self) -> bytes:
        """The final event for viewers that have everything."""

    async def history(self, behind: K) -> LogPart[K]:
        """``read``, once for all viewers that want the same at the same time."""
        task = self._reading.get(behind)
        if task is None:
            task = self._reading[behind] = asyncio.create_task(self.read(behind))
            task.add_done_callback(lambda done: self._was_read(behind, done))
        return await asyncio.shield(task)

    def _was_read(self, behind: K, done: asyncio.Task[LogPart[K]]) -> None:
        self._reading.pop(behind, None)
        if not done.cancelled():
            done.exception()  # mark it as retrieved: the viewers may have left


_PAGE_EVENTS = 200
_WHOLE_VERSION = 1 << 31


class Listener(Protocol):
    def hears(self, event: RecordedEvent) -> None: ...


def all_of_version(version: int) -> Position:
    """The position after all events of ``version``."""
    return Position(version, _WHOLE_VERSION)


class RunJournal(WatchedLog[Position]):
    """The events of one run. Ends with the event that ends the run; for an ended run, with all that
    were written until now."""

    def __init__(self, log: EventLog, run: RunSummary, after: Position) -> None:
        super().__init__(run.run_id, min(after, all_of_version(run.version)))
        self.listeners: WeakSet[Listener] = WeakSet()
        self._log = log
        self._run_id = run.run_id
        self._end = str(run.status) if run.ended else None

    async def look(self) -> None:
        size = self.size
        while True:
            events = await self._events(self.place)
            self._hear(events)
            self.publish([Frame(event.position, _encoded_event(event)) for event in events])
            if len(events) < _PAGE_EVENTS:
                break
        self.size_seen = size
        if self._end is not None:
            self.end()

    async def read(self, behind: Position) -> LogPart[Position]:
        data = b""
        for event in await self._events(behind):
            data += _encoded_event(event)
            behind = event.position
            if len(data) >= CHUNK:
                break
        return LogPart(behind, data)

    def last_words(self) -> bytes:
        return message(RunEnded(run_id=self._run_id, status=str(self._end)), kind="end")

    async def _events(self, after: Position) -> list[RecordedEvent]:
        return await self._log.read_events(self._run_id, after, limit=_PAGE_EVENTS)

    def _hear(self, events: Sequence[RecordedEvent]) -> None:
        for event in events:
            if event.kind == "run" and event.status in TERMINAL_RUN:
                self._end = event.status
            for listener in self.listeners:
                listener.hears(event)


def _encoded_event(event: RecordedEvent) -> bytes:
    return message(shown_as(RecordedEvent, event), place=event.position)


_SLICE_BYTES = 65536


class OutputLog(WatchedLog[int]):
    """What one task prints. Ends when its task or run has ended, which is checked after events in
    the run's ``journal``, or each time without one."""

    def __init__(
        self,
        store: RunStateStore,
        logs: LogStore,
        journal: RunJournal | None,
        run_id: str,
        key: LogKey,
        offset: int,
    ) -> None:
        super().__init__((run_id, key), offset)
        self.journal = journal
        self._store = store
        self._logs = logs
        self._run_id = run_id
        self._key = key
        self._in_doubt = True
        self._ended = False
        if journal is not None:
            journal.listeners.add(self)

    def hears(self, event: RecordedEvent) -> None:
        ours = event.step_index == self._key.step and event.host in (None, self._key.host)
        self._in_doubt |= ours or event.kind == "run"

    @property
    def still(self) -> bool:
        return super().still and not self._in_doubt

    async def look(self) -> None:
        """Check for the end first: all output of a task is stored before its end."""
        size = self.size
        if self._in_doubt and not self._ended:
            self._in_doubt = self.journal is None
            try:
                self._ended = has_ended(await self._store.get_run(self._run_id), self._key)
            except BaseException:
                self._in_doubt = True
                raise
        while (frame := self._frame(await self._slice(self.place))) is not None:
            self.publish([frame])
        self.size_seen = size
        if self._ended:
            self.end()

    async def read(self, behind: int) -> LogPart[int]:
        frame = self._frame(await self._slice(behind))
        return LogPart(behind, b"") if frame is None else LogPart(frame.place, frame.data)

    def last_words(self) -> bytes:
        said = OutputEnded(run_id=self._run_id, attempt=self._key.attempt, size=self.place)
        return message(said, kind="end")

    async def _slice(self, offset: int) -> LogSlice:
        return await self._logs.read(self._run_id, self._key, offset, limit=_SLICE_BYTES)

    def _frame(self, found: LogSlice) -> Frame[int] | None:
        if not found.data or (is_begun(found.data) and not self._ended):
            return None
        text, length = readable(found.data)
        end = found.offset + length
        shown = Output(
            offset=found.offset,
            next_offset=end,
            size=found.size,
            attempt=self._key.attempt,
            text=text,
        )
        return Frame(end, message(shown, place=end))


def has_ended(run: RunSnapshot, key: LogKey) -> bool:
    """Whether this attempt will print nothing more."""
    if run.ended:
        return True
    host = run.steps[key.step].hosts[key.host]
    if host.status in ENDED_HOST:
        return True
    if key.item is None:
        return host.attempts > key.attempt
    if key.item >= len(host.items):
        return False
    item = host.items[key.item]
    return item.status in ENDED_HOST or item.attempts > key.attempt


async def view(watched: WatchedLog[K], place: K) -> AsyncGenerator[LogPart[K], None]:
    """Everything after ``place``, to the end. Raises the error that ended it, if any."""
    while True:
        if place < watched.kept_behind:
            part = await until_answered(partial(watched.history, place), ENDLESS)
            place = part.place if part.data else watched.kept_behind  # nothing in between
        else:
            part = watched.behind(place)
            place = part.place
        if part.data:
            yield part
        elif watched.failure is not None:
            raise watched.failure
        elif place >= watched.place:
            if watched.over:
                yield LogPart(place, watched.last_words())
                return
            await watched.news()


class Patience(Struct, frozen=True, kw_only=True):
    """Time-outs of a stream, in seconds."""

    heartbeat: float = 15.0
    """Idle time until a comment is sent: proxies cut idle connections."""
    stalled: float = 20.0
    """For a viewer to take what was sent, before it is disconnected."""
    farewell: float = 5.0
    """Then, to take what is in flight."""


_HEADERS = (
    (b"content-type", SSE_MEDIA_TYPE.encode() + b"; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"connection", b"close"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    *STEADY,
)


async def send_stream(
    scope: Scope,
    receive: Receive,
    send: Send,
    parts: AsyncGenerator[LogPart[Any]],
    closing: asyncio.Event,
    dismissal: Callable[[], Coroutine[Any, Any, None]],
    patience: Patience,
) -> None:
    """Send ``parts`` as server-sent events. ``closing`` ends the stream, so that the client
    continues at another gateway; ``dismissal`` raises once the viewer's token is invalid."""
    async with aclosing(parts):
        await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body"})
        else:
            dismissed = asyncio.create_task(dismissal())
            await _Sending(send, patience).all_of(parts, receive, closing, dismissed)


class _Sending:
    def __init__(self, send: Send, patience: Patience) -> None:
        self._send = send
        self._patience = patience
        self._place: object = None

    async def all_of(
        self,
        parts: AsyncGenerator[LogPart[Any]],
        receive: Receive,
        closing: asyncio.Event,
        dismissed: asyncio.Task[None],
    ) -> None:
        leaving = asyncio.create_task(_left(receive))
        closed = asyncio.create_task(closing.wait())
        try:
            last = await self._tell(parts, leaving, closed, dismissed)
            await parts.aclose()  # polling stops even if the viewer is slow to take the rest
            if last is None:
                await self._drop()
            elif not leaving.done():
                await self._send({"type": "http.response.body", "body": last})
        finally:
            await _end(leaving, closed, dismissed)

    async def _tell(
        self,
        parts: AsyncGenerator[LogPart[Any]],
        leaving: asyncio.Task[None],
        closed: asyncio.Task[Any],
        dismissed: asyncio.Task[None],
    ) -> bytes | None:
        """The final bytes to send; ``None`` if the viewer has stopped reading."""
        step = asyncio.create_task(_next(parts))
        part: LogPart[Any] | None = LogPart(None, OPENING)
        try:
            while part is not None and await self._is_taken(part):
                seconds = self._patience.heartbeat
                waited = (step, leaving, closed, dismissed)
                await asyncio.wait(waited, timeout=seconds, return_when=FIRST_COMPLETED)
                if leaving.done():
                    return b""
                if closed.done():
                    return self._farewell("closing")
                if dismissed.done():
                    dismissed.result()
                if step.done():
                    part = step.result()
                    step = asyncio.create_task(_next(parts))
                else:
                    part = LogPart(self._place, HEARTBEAT)
        except Exception as error:  # noqa: BLE001  (reported to the viewer)
            return message(problem_of(error), kind="problem")
        finally:
            await _end(step)
        return b"" if part is None else None

    async def _is_taken(self, part: LogPart[Any]) -> bool:
        """Whether the viewer took the previous part in time; ``part`` is then being sent."""
        try:
            async with asyncio.timeout(self._patience.stalled):
                await self._send(
                    {"type": "http.response.body", "body": part.data, "more_body": True}
                )
        except TimeoutError:
            return False
        self._place = part.place
        return True

    def _farewell(self, why: str) -> bytes:
        after = None if self._place is None else str(self._place)
        return message(Interrupted(after=after), kind=why)

    async def _drop(self) -> None:
        """Send the viewer its position, if it reads on in time. Otherwise the response ends
        unfinished, and the server closes the connection."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience.farewell):
                word = self._farewell("dropped")
                await self._send({"type": "http.response.body", "body": word})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _next(parts: AsyncGenerator[LogPart[Any]]) -> LogPart[Any] | None:
    return await anext(parts, None)


async def _end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
