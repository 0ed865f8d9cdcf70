"""Getting one callback to its target, once."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from tenure.model.outbox import Delivery


class NotTaken(Struct, frozen=True, kw_only=True):
    """Why the target has not got it."""

    error: str
    """For people; never holds a secret."""
    again: bool
    """Whether another attempt makes sense."""
    not_before: float = 0.0
    """Seconds the target asked us to wait (``Retry-After``)."""


class CallbackSender(Protocol):
    """One attempt for one delivery. Who tries again, and when, is the relay's business."""

    async def send(self, delivery: Delivery) -> NotTaken | None:
        """``None``: the target has it. Bounded in time and memory whatever the target does; never
        raises for what a target does wrong."""
        ...

    async def close(self) -> None: ...
