"""One request as its handler sees it, and what the handler answers."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from datetime import datetime
from math import inf
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct, field
from starlette.convertors import PathConvertor, register_url_convertor

from tenure.gateway.live.feed import Live
from tenure.gateway.live.streams import LogPart, Patience
from tenure.gateway.metrics import Meters, StoreNumbers
from tenure.gateway.problems import Kind
from tenure.gateway.wakeups import WakeupHub
from tenure.model.errors import StoreIncompatible, StoreUnavailable, TenureError
from tenure.model.outbox import Delivery
from tenure.model.snapshot import RunSnapshot
from tenure.model.tokens import Role
from tenure.ports.leases import Presence
from tenure.ports.store import ReadinessCheck, RunStateStore
from tenure.runtime.options import RunOptions
from tenure.runtime.prepare import Source
from tenure.runtime.recovery import EndedRuns
from tenure.runtime.retry import RetryOptions
from tenure.wire.runs import NoQuery

# Who may do what.


READ = frozenset(Role)
OPERATE = frozenset({Role.OPERATOR, Role.ADMIN})
WORK = frozenset({Role.WORKER, Role.ADMIN})
ADMINISTER = frozenset({Role.ADMIN})


class Caller(Struct, frozen=True, gc=False):
    """Who asks: the name of a token; journals and logs have it."""

    name: str
    role: Role
    queues: frozenset[str] | None = None
    """Whose runs it may see and touch; ``None``: all."""
    token_id: str = ""

    def may_touch(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues


# Whether the store can be used, for whoever asks and however often.


_PATIENCE = 2.0
"""Seconds for the store to answer."""
_FRESH = 1.0
"""Seconds for which an answer stands: those who ask need no token, and must cost nothing."""


class StoreWatch:
    def __init__(self, store: RunStateStore, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._seen = ""
        self._seen_at = -inf
        self._looking = asyncio.Lock()

    async def state(self) -> str:
        """``ok``, or in one word what is wrong."""
        async with self._looking:
            if self._clock() - self._seen_at > _FRESH:
                self._seen = await self._look()
                self._seen_at = self._clock()
        return self._seen

    async def _look(self) -> str:
        try:
            async with asyncio.timeout(_PATIENCE):
                if isinstance(self._store, ReadinessCheck):
                    await self._store.check_ready()
                else:
                    await self._store.list_runs(limit=1)
        except StoreIncompatible:
            return "incompatible"
        except (StoreUnavailable, TimeoutError):
            return "unavailable"
        except TenureError:
            return "unusable"
        return "ok"


# What the gateway is made of: handed in by whoever puts the process together.


class Operations(Protocol):
    """Everything that changes runs without executing them; ``Runner`` is one."""

    async def submit(
        self, workflow: Any, options: RunOptions = ..., *, update_id: str | None = ...
    ) -> RunSnapshot: ...

    async def submit_retry(
        self, run_id: str, options: RetryOptions = ..., *, update_id: str | None = ...
    ) -> RunSnapshot: ...

    async def approve(self, run_id: str, *, by: str, note: str | None = ...) -> RunSnapshot: ...

    async def cancel(
        self, run_id: str, *, reason: str | None = ..., by: str | None = ...
    ) -> RunSnapshot: ...

    async def annotate(
        self,
        run_id: str,
        data: dict[str, Any],
        *,
        by: str | None = ...,
        update_id: str | None = ...,
    ) -> RunSnapshot: ...

    async def end_abandoned(self, *, reason: str = ...) -> EndedRuns: ...

    async def redeliver(self, delivery_id: str, *, by: str | None = ...) -> Delivery: ...


class Limits(Struct, frozen=True, kw_only=True):
    """What a request may cost. Sizes are bytes, times seconds."""

    body_bytes: int = 1 << 20
    """Of a request, unless its route allows more."""
    all_bodies: int = 256 << 20
    """Of all requests at once."""
    body_seconds: float = 30.0
    rate: float = 500.0
    """Requests a second, of one token on average; zero: any number."""
    burst: float = 1000.0
    connections: int = 4096
    idle_seconds: int = 75
    drain_seconds: int = 10
    """For answers under way once the gateway was told to stop."""


class GatewayState(Struct, kw_only=True, gc=False):
    """For handlers."""

    store: RunStateStore
    desk: Operations
    read: Callable[[str], Source]
    """A workflow's text as ``Desk.submit`` takes it; may take a while. ``InvalidWorkflow``."""
    now: Callable[[], datetime]
    presence: Callable[[str], Presence]
    watch: StoreWatch
    closing: asyncio.Event
    """Set when the gateway is told to stop: whatever streams ends then."""
    hearing: WakeupHub
    live: Live
    meters: Meters
    numbers: StoreNumbers
    patience: Patience = Patience()
    """With those who look."""
    document: bytes = b"{}"
    """The OpenAPI document of the routes there are."""
    steady: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """Of what never changes, by media type: its entity tag, and it compressed."""


Q = TypeVar("Q")
B = TypeVar("B")


class Call(Struct, Generic[Q, B], frozen=True, gc=False, kw_only=True):
    """Checked by its route before a handler gets it: the caller may ask this, ``query`` and
    ``body`` are of their types and sizes."""

    parts: GatewayState
    caller: Caller
    path: Mapping[str, str]
    query: Q
    body: B
    headers: Mapping[str, str]


class Answer(Struct, frozen=True, gc=False, kw_only=True):
    """``value`` is shown as the type that the route declares for its status."""

    value: Any = None
    status: int = 200
    headers: Mapping[str, str] = {}


class RawAnswer(Struct, frozen=True, gc=False, kw_only=True):
    """Bytes as they are; ``packed``: the same, compressed once for all who want it so."""

    body: bytes
    media_type: str
    packed: bytes | None = None
    status: int = 200
    headers: Mapping[str, str] = {}


class StreamAnswer(Struct, frozen=True, gc=False, kw_only=True):
    """Server-sent events, as they come. Whoever sends them closes ``parts``."""

    parts: AsyncGenerator[LogPart[Any], None]


# One row of the table of routes: all that is known of a request before it is made.


_PARAMETER = re.compile(r"\{(\w+)\}")
_WITH_SLASHES = re.compile(r"\{(owner_id|host)\}$")
"""What may hold slashes stands last: in a path they cannot be told from others."""


class _Rest(PathConvertor):
    regex = "(?s:.*)"


register_url_convertor("rest", _Rest())
"""All that is left of a path, line breaks too."""


class Route(Struct, Generic[Q, B], frozen=True, kw_only=True):
    """Server, role check, validation, OpenAPI document and the tests of all three read this."""

    method: str
    path: str
    summary: str
    roles: frozenset[Role] | None
    """Who may; ``None``: anybody, without a token."""
    handler: Callable[[Call[Q, B]], Awaitable[Answer | RawAnswer | StreamAnswer]]
    answers: dict[int, Any]
    """The type of the JSON for each status, or a media type."""
    streams: bool = False
    """With ``Accept: text/event-stream``: server-sent events instead."""
    query: type[Q] = NoQuery  # type: ignore[assignment]
    body: type[B] | None = None
    body_optional: bool = False
    most_bytes: int | None = None
    """If it may be larger than usual."""
    problems: tuple[Kind, ...] = ()
    """Besides those that any route may answer with."""
    request_headers: dict[str, str] = {}
    """Headers it reads, with what they are for."""

    @property
    def pattern(self) -> str:
        """As the router has it."""
        return _WITH_SLASHES.sub(r"{\1:rest}", self.path)

    @property
    def parameters(self) -> list[str]:
        return _PARAMETER.findall(self.path)


# Workflows that were handed in before need not be read again.


T = TypeVar("T")

_MOST = 64
_MOST_CHARACTERS = 8 << 20


class Library(Generic[T]):
    """By their text; one at a time is read, however many threads ask: reading is work."""

    def __init__(self, read: Callable[[str], T]) -> None:
        self._read = read
        self._known: OrderedDict[str, T] = OrderedDict()
        self._characters = 0
        self._lock = threading.Lock()

    def read(self, text: str) -> T:
        with self._lock:
            found = self._known.get(text)
            if found is None:
                found = self._known[text] = self._read(text)
                self._characters += len(text)
                while len(self._known) > _MOST or self._characters > _MOST_CHARACTERS:
                    oldest, _ = self._known.popitem(last=False)
                    self._characters -= len(oldest)
            else:
                self._known.move_to_end(text)
            return found
