"""Who is there."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct


class WorkerInfo(Struct, frozen=True, kw_only=True):
    owner_id: str
    queues: tuple[str, ...] = ("default",)
    concurrency: int = 0
    running: int = 0
    draining: bool = False
    """It takes nothing more, and goes when what it has is done."""
    details: dict[str, Any] = {}
    seen_at: datetime | None = None
    """Stamped by the store."""


@runtime_checkable
class WorkerRegistry(Protocol):
    """For people only; ownership never depends on it."""

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        """Be listed for ``seconds`` from now. Zero takes the entry away."""
        ...

    async def list_workers(self) -> list[WorkerInfo]:
        """Those whose last heartbeat still counts, by ``owner_id``."""
        ...
