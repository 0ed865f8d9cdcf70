"""What the gateway is made of: handed in by whoever puts the process together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct, field

from tenure.gateway.hearing import Hearing
from tenure.gateway.live.hub import Live
from tenure.gateway.live.patience import Patience
from tenure.gateway.metrics.census import StoreNumbers
from tenure.gateway.metrics.meters import Meters
from tenure.gateway.queues import QueuesOfRuns
from tenure.gateway.watching import StoreWatch
from tenure.model.outbox import Delivery
from tenure.model.snapshot import RunSnapshot
from tenure.ports.liveness import Presence
from tenure.ports.run_store import RunStateStore
from tenure.runtime.options import RunOptions
from tenure.runtime.ready import Source
from tenure.runtime.recovery import EndedRuns
from tenure.runtime.retrying import RetryOptions


class Desk(Protocol):
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
        self, run_id: str, data: dict[str, Any], *, by: str | None = ...
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


class Parts(Struct, kw_only=True, gc=False):
    """For handlers."""

    store: RunStateStore
    desk: Desk
    read: Callable[[str], Source]
    """A workflow's text as ``Desk.submit`` takes it; may take a while. ``InvalidWorkflow``."""
    now: Callable[[], datetime]
    presence: Callable[[str], Presence]
    watch: StoreWatch
    closing: asyncio.Event
    """Set when the gateway is told to stop: whatever streams ends then."""
    hearing: Hearing
    queues: QueuesOfRuns
    live: Live
    meters: Meters
    numbers: StoreNumbers
    patience: Patience = Patience()
    """With those who look."""
    document: bytes = b"{}"
    """The OpenAPI document of the routes there are."""
    steady: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """Of what never changes, by media type: its entity tag, and it compressed."""
