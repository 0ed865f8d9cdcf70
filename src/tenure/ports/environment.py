"""Time as a thing that is passed in."""

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


# Being told which run to claim: a faster way to find it than looking.


class Hint(Struct, frozen=True, kw_only=True):
    """One run that could be claimed when somebody said so. ``receipt`` is the broker's own name for
    this very handing-out."""

    queue: str
    run_id: str
    receipt: str


@runtime_checkable
class Broker(Protocol):
    """Carries hints to workers, each to one of them.

    *An id and no state.* What a run is, may do, and whose it is, the store says. A hint may come
    late, twice, or for a run that has ended; workers still look at the store by themselves. So
    losing every hint costs latency and nothing else.

    *At least once.* A hint that was taken is hidden from others until it is acknowledged or given
    back. If neither happens for as long as the broker hides hints (its visibility time-out, set
    when it is opened), it is handed out again. Who took it before has no say in it any more: the
    answer to a handing-out that is over changes nothing.

    *Bounded.* Every call ends in a few seconds at most, and so does the room that hints take:
    the oldest are dropped before it grows without end. What did not come from ``publish`` is
    dropped, and never handed out.

    ``BrokerUnavailable`` from any call: nobody knows whether it happened, and nothing needs to be
    done about it. A cancelled call may have happened as well.
    """

    async def publish(self, queue: str, run_id: str) -> None:
        """There may be something to claim. Returns when the broker has it."""
        ...

    async def take(self, queues: Sequence[str], *, limit: int, wait: float) -> list[Hint]:
        """Up to ``limit`` hints, of these queues together; those beyond it stay others' to take. No
        queue has to wait until another is empty. With none there it waits for the first, for
        ``wait`` seconds or less; then the list is empty."""
        ...

    async def acknowledge(self, hints: Sequence[Hint]) -> None:
        """They are done with: nobody gets them again."""
        ...

    async def give_back(self, hint: Hint, delay: float) -> None:
        """Somebody gets it again, in ``delay`` seconds. Of several hints that wait for the same run
        the first stands for all."""
        ...

    async def purge(self, queue: str) -> None:
        """Drop every hint of this queue, also those that were taken and those given back."""
        ...

    async def ping(self) -> None:
        """Returns once the broker has answered."""
        ...
