"""What handlers work with: caller, call, answers, route, limits, and the state of the gateway."""

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
from tenure.runtime.reconciler import EndedRuns
from tenure.runtime.retry import RetryOptions
from tenure.wire.runs import NoQuery
from tenure.workflow.callbacks import Signing

READ = frozenset(Role)
OPERATE = frozenset({Role.OPERATOR, Role.ADMIN})
WORK = frozenset({Role.WORKER, Role.ADMIN})


class Caller(Struct, frozen=True, gc=False):
    """The sender of a request: the name of its token, for journals and logs."""

    name: str
    role: Role
    queues: frozenset[str] | None = None
    """Queues whose runs it may see and touch; ``None``: all."""
    token_id: str = ""

    def may_touch(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues


_STORE_TIMEOUT_S = 2.0
_STATE_TTL_S = 1.0
"""For so long an answer is cached: readiness requests need no token, and must cost nothing."""


class StoreWatch:
    """Whether the store can be used, however often that is asked."""

    def __init__(self, store: RunStateStore, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._seen = ""
        self._seen_at = -inf
        self._looking = asyncio.Lock()

    async def state(self) -> str:
        """``ok``, or in one word what is wrong."""
        async with self._looking:
            if self._clock() - self._seen_at > _STATE_TTL_S:
                self._seen = await self._look()
                self._seen_at = self._clock()
        return self._seen

    async def _look(self) -> str:
        try:
            async with asyncio.timeout(_STORE_TIMEOUT_S):
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


class Operations(Protocol):
    """Every change of a run other than executing it, such as a ``Runner``'s."""

    @property
    def signing(self) -> Signing: ...

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
    """What requests may cost, in bytes and seconds."""

    body_bytes: int = 1 << 20
    """Of one request, unless its route allows more."""
    all_bodies: int = 256 << 20
    """Of all requests being received."""
    body_seconds: float = 30.0
    rate: float = 500.0
    """Requests a second of one token on average; zero: no limit."""
    burst: float = 1000.0
    connections: int = 4096
    idle_seconds: int = 75
    drain_seconds: int = 10
    """For answers in progress when the gateway stops."""
    run_tasks: int = 200_000
    """Of a new run: hosts of all its steps, loop items counted."""
    large_answers: int = 16
    """Records of many hosts, on their way at once."""
    large_answers_of_one: int = 4
    """The same, of one token."""
    send_seconds: float = 20.0
    """For a client to take a piece of 64 kB."""
    claimed_hosts: int = 50_000
    """In one answer to a claim, beyond its first run."""


class GatewayState(Struct, kw_only=True, gc=False):
    """Shared state for handlers, made by the process that runs the gateway."""

    store: RunStateStore
    desk: Operations
    read: Callable[[str], Source]
    """Parses a workflow's text; may take a while. ``InvalidWorkflow``."""
    now: Callable[[], datetime]
    presence: Callable[[str], Presence]
    watch: StoreWatch
    closing: asyncio.Event
    """Set when the gateway stops: streams end then."""
    hearing: WakeupHub
    live: Live
    meters: Meters
    numbers: StoreNumbers
    patience: Patience = Patience()
    """Time-outs of streams."""
    limits: Limits = Limits()
    document: bytes = b"{}"
    """The OpenAPI document."""
    steady: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """Constant answers by media type: entity tag and compressed bytes."""


Q = TypeVar("Q")
B = TypeVar("B")


class Call(Struct, Generic[Q, B], frozen=True, gc=False, kw_only=True):
    """A validated request: the caller is admitted, ``query`` and ``body`` fit their types and
    sizes."""

    parts: GatewayState
    caller: Caller
    path: Mapping[str, str]
    query: Q
    body: B
    headers: Mapping[str, str]


class Answer(Struct, frozen=True, gc=False, kw_only=True):
    """``value`` is encoded as the type that the route declares for its status."""

    value: Any = None
    status: int = 200
    headers: Mapping[str, str] = {}


class RawAnswer(Struct, frozen=True, gc=False, kw_only=True):
    """Bytes sent unchanged; ``packed`` is the same, compressed."""

    body: bytes
    media_type: str
    packed: bytes | None = None
    status: int = 200
    headers: Mapping[str, str] = {}


class StreamAnswer(Struct, frozen=True, gc=False, kw_only=True):
    """Server-sent events. The sender closes ``parts``."""

    parts: AsyncGenerator[LogPart[Any], None]


_PARAMETER = re.compile(r"\{(\w+)\}")
_SLASH_PARAMETER = re.compile(r"\{(owner_id|host)\}$")
"""Parameters that may contain slashes; they must be the last in a path."""


class _Rest(PathConvertor):
    regex = "(?s:.*)"


register_url_convertor("rest", _Rest())
"""The rest of a path, including slashes and line breaks."""


class Route(Struct, Generic[Q, B], frozen=True, kw_only=True):
    """One row of the table: used by server, role check, validation, OpenAPI document and tests."""

    method: str
    path: str
    summary: str
    roles: frozenset[Role] | None
    """Admitted roles; ``None``: no token needed."""
    handler: Callable[[Call[Q, B]], Awaitable[Answer | RawAnswer | StreamAnswer]]
    answers: dict[int, Any]
    """The type of the JSON for each status, or a media type."""
    streams: bool = False
    """With ``Accept: text/event-stream``: server-sent events instead."""
    query: type[Q] = NoQuery  # type: ignore[assignment]
    body: type[B] | None = None
    body_optional: bool = False
    max_body_bytes: int | None = None
    """Body limit, if larger than usual."""
    problems: tuple[Kind, ...] = ()
    """Besides those that any route may answer with."""
    request_headers: dict[str, str] = {}
    """Headers it reads, with their purpose."""

    @property
    def pattern(self) -> str:
        """The path as the router needs it."""
        return _SLASH_PARAMETER.sub(r"{\1:rest}", self.path)

    @property
    def parameters(self) -> list[str]:
        return _PARAMETER.findall(self.path)


T = TypeVar("T")

_MAX_CACHED_WORKFLOWS = 64
_MAX_CACHED_CHARACTERS = 8 << 20


class ParsedWorkflows(Generic[T]):
    """Parsed workflows by their text. Parsing is CPU work, so it is done by one thread at a
    time."""

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
                while (
                    len(self._known) > _MAX_CACHED_WORKFLOWS
                    or self._characters > _MAX_CACHED_CHARACTERS
                ):
                    oldest, _ = self._known.popitem(last=False)
                    self._characters -= len(oldest)
            else:
                self._known.move_to_end(text)
            return found
