"""How much there is, and how much of it is to be done, in numbers."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from msgspec import Struct

from tenure.model.status import RunStatus


class QueueLength(Struct, frozen=True, kw_only=True):
    """Runs of one queue that a worker could claim, had none ever been taken away from its owner."""

    queue: str
    runs: int
    oldest_seconds: float
    """For how long the one that became ready first has waited."""


class Census(Struct, frozen=True, kw_only=True):
    runs: dict[RunStatus, int]
    """By every status there is."""
    callbacks_waiting: int
    callbacks_dead: int
    queues: tuple[QueueLength, ...]
    """By name; a queue in which nothing waits may be missing."""


@runtime_checkable
class CensusTaking(Protocol):
    """Without it whoever watches over a store has to list what he wants to count."""

    async def take_census(self, *, most: int = 10_000) -> Census:
        """Each number as it is, or ``most`` if it is larger: so that counting costs little however
        much there is, and can be done every few seconds. Of ``most`` queues at the most."""
        ...
