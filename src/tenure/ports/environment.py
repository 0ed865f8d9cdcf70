"""The clock, and the broker that tells workers which run to claim."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol, runtime_checkable

from msgspec import Struct


class BootTime(NamedTuple):
    """A machine's clock that never jumps: the boot it belongs to and nanoseconds since then.

    Values of different boots cannot be compared; a lease of another boot has expired.
    """

    boot_id: str
    nanoseconds: int


class Clock(Protocol):
    """The only way the product learns what time it is. Tests and simulations pass their own."""

    def now(self) -> datetime:
        """Wall time, UTC: for people and schedules, never for ownership."""
        ...

    def boot_time(self) -> BootTime:
        """For leases among processes of one machine; counts while the machine sleeps."""
        ...


class Hint(Struct, frozen=True, kw_only=True):
    """One run that could be claimed when the hint was published. ``receipt`` identifies this
    delivery of the hint at the broker."""

    queue: str
    run_id: str
    receipt: str


@runtime_checkable
class Broker(Protocol):
    """Carries hints to workers, each to one of them. A faster way to find a run than polling.

    *An id and no state.* State and owner of a run are read from the store. A hint may come late,
    twice, or for a run that has ended, and workers still poll the store. So losing every hint costs
    latency and nothing else.

    *At least once.* A hint that was taken is hidden from other workers until it is acknowledged or
    given back. If neither happens within the broker's visibility time-out (set when it is opened),
    it is delivered again; an answer to the earlier delivery then has no effect.

    *Bounded.* Every call ends within a few seconds. Storage is bounded too: the oldest hints are
    dropped first. Messages that did not come from ``publish`` are dropped, never handed out.

    ``BrokerUnavailable`` from any call: it may have happened or not, and nothing needs to be done
    about it. A cancelled call may have happened as well.
    """

    async def publish(self, queue: str, run_id: str) -> None:
        """Announce a run that may be claimable. Returns when the broker has the hint."""
        ...

    async def take(self, queues: Sequence[str], *, limit: int, wait: float) -> list[Hint]:
        """Up to ``limit`` hints of these queues together, the queues served fairly. Waits up to
        ``wait`` seconds for the first one, then returns an empty list."""
        ...

    async def acknowledge(self, hints: Sequence[Hint]) -> None:
        """Remove these hints; they are not delivered again."""
        ...

    async def give_back(self, hint: Hint, delay: float) -> None:
        """Deliver the hint again in ``delay`` seconds. Several waiting hints for one run count as
        one, the earliest."""
        ...

    async def purge(self, queue: str) -> None:
        """Drop every hint of this queue, taken and given-back ones included."""
        ...

    async def ping(self) -> None:
        """Returns once the broker has answered."""
        ...
