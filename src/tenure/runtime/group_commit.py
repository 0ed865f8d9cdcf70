"""Group commit: the writes of many runs that are ready at the same moment share one commit.

There is no timer. While a commit is on its way, further writes gather; the next commit takes
them. An idle store is asked at once, so one run alone is as fast as without a combiner. Each
caller is answered after the commit that holds its write: an acknowledged write is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from copy import copy
from typing import TypeVar

from tenure.aio import cancel_and_wait
from tenure.model.errors import StoreIncompatible, StoreLost, StoreUnavailable, TenureError
from tenure.model.leases import LATE, Pace
from tenure.model.update import Receipt, Update, Write, run_id_of
from tenure.ports.store import BatchUpdates, ParallelBatches, RunStateStore

# Whether this process has been in touch with its store for long enough to judge others by it.
#
# An expired lease says that its owner did not renew. If the store was away, or this process was
# frozen (perhaps with everybody else), nobody could: for one renew interval after that, and after
# the start, expired leases are left alone, so that their owners get the chance to come back first.
#
# Whoever of this process met the error, it is all of it that was out of touch: a worker without
# room claims nothing while the store is away, and hears of it by its writes, renewals and
# heartbeats.


T = TypeVar("T")


class StoreContact:
    """Of one event loop with one store, for all who ask it something."""

    def __init__(self, renew_interval: float) -> None:
        self.needed = renew_interval
        self.lost()

    def lost(self) -> None:
        """The store did not answer: it counts from now."""
        self.since = asyncio.get_running_loop().time()


class InTouch:
    """As one of those sees it who ask: each has a pace of its own, for how long a store always
    takes depends on what it is asked; and each knows when it means to go on. It counts from when
    it began, too."""

    def __init__(self, contact: StoreContact) -> None:
        self._contact = contact
        self._needed = contact.needed
        self._pace = Pace()
        self._awake_since = self._due = asyncio.get_running_loop().time()

    @property
    def long_enough(self) -> bool:
        """Expired leases may be taken."""
        since = max(self._contact.since, self._awake_since)
        lasted = asyncio.get_running_loop().time() - since
        return lasted >= self._needed and not self._was_frozen

    async def asked(self, answer: Awaitable[T]) -> T:
        """What the store says to it; how that went is noted."""
        sent_at = asyncio.get_running_loop().time()
        try:
            said = await answer
        except StoreUnavailable:
            self.lost()
            raise
        except TenureError:
            self.answered(sent_at)
            raise
        self.answered(sent_at)
        return said

    def answered(self, sent_at: float) -> None:
        """What was asked at that moment of the loop's time. Who waited for long was out of touch,
        whatever the answer; unless that is how long this store always takes."""
        now, late = asyncio.get_running_loop().time(), max(LATE, self._needed / 2)
        if self._pace.was_away(sent_at, now, late=late, lease=3 * self._needed):
            self.lost()

    def lost(self) -> None:
        """The store did not answer."""
        self._contact.lost()

    def rests(self, until: float) -> None:
        """This one means to go on at that moment of the loop's time, or before."""
        if self._was_frozen:
            self._awake_since = asyncio.get_running_loop().time()
        self._due = until

    def asks(self) -> None:
        """It waits for the store, which may take a moment to answer."""
        self.rests(asyncio.get_running_loop().time() + self._needed / 2)

    @property
    def _was_frozen(self) -> bool:
        return asyncio.get_running_loop().time() - self._due > self._needed / 2


LARGEST_BATCH = 500

_Pending = tuple[Write, "asyncio.Future[Receipt]"]


class GroupCommit:
    """If the store can have several batches under way, each is at most its share of what waits:
    while it works on one, what comes of the other is done here. All in one, store and process
    would take turns. ``touch`` hears how each commit went; ``None``: nobody judges others by it."""

    def __init__(self, store: RunStateStore, touch: InTouch | None = None) -> None:
        self._store = store
        self._touch = touch
        self._batches = store if isinstance(store, BatchUpdates) else None
        self._at_once = store.batches_at_once if isinstance(store, ParallelBatches) else 1
        self._under_way = 0
        self._senders: set[asyncio.Task[None]] = set()
        self._pending: list[_Pending] = []
        self._beginning = False
        """A sender is about to take what waits."""

    def write(self, write: Write) -> Awaitable[Receipt]:
        """Raises what the store's single call would."""
        if self._batches is None:
            alone = self._alone(write)
            return alone if self._touch is None else self._touch.asked(alone)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Receipt] = loop.create_future()
        self._pending.append((write, answer))
        if not self._beginning and self._under_way < self._at_once:
            self._begin(self._batches)
        return answer

    async def close(self) -> None:
        """Wait for what is under way. Cancelled, it is ended: nobody knows what becomes of it."""
        try:
            while self._senders:
                await asyncio.wait(self._senders)
        except asyncio.CancelledError:
            await cancel_and_wait(*self._senders)
            raise

    async def _alone(self, write: Write) -> Receipt:
        try:
            if isinstance(write, Update):
                return await self._store.update_run(write)
            return await self._store.create_run(write)
        except TenureError:
            raise
        except Exception as error:  # an integrator's driver: what it did, nobody knows
            raise _outcome_unknown(error) from error

    def _begin(self, store: BatchUpdates) -> None:
        self._beginning = True
        self._under_way += 1
        sender = asyncio.ensure_future(self._send(store))
        self._senders.add(sender)
        sender.add_done_callback(self._senders.discard)

    async def _send(self, store: BatchUpdates) -> None:
        """Not before the loop's next turn: whoever else is ready in this one comes along."""
        self._beginning = False
        try:
            while self._pending:
                batch = self._next_batch()
                if self._pending and not self._beginning and self._under_way < self._at_once:
                    self._begin(store)
                await self._send_batch(store, batch)
        finally:
            # Here, not when the task is done: a write that comes in between must find us idle.
            self._under_way -= 1

    async def _send_batch(self, store: BatchUpdates, batch: list[_Pending]) -> None:
        sent_at = asyncio.get_running_loop().time()
        try:
            outcomes = await store.update_runs([write for write, _ in batch])
            _answer(batch, outcomes)
        except BaseException as error:
            _answer_all(batch, error)
            if not isinstance(error, Exception):
                raise
            self._note(sent_at, answered=False)
        else:
            # A run that somebody has locked is no outage, if others of its batch are written.
            away = all(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
            self._note(sent_at, answered=not away)

    def _note(self, sent_at: float, *, answered: bool) -> None:
        if self._touch is None:
            return
        if answered:
            self._touch.answered(sent_at)
        else:
            self._touch.lost()

    def _next_batch(self) -> list[_Pending]:
        free = self._at_once - self._under_way + 1
        size = min(-(-len(self._pending) // free), LARGEST_BATCH)
        batch, self._pending = self._pending[:size], self._pending[size:]
        if len({run_id_of(write) for write, _ in batch}) < len(batch):
            batch = self._one_per_run(batch)
        return batch

    def _one_per_run(self, batch: list[_Pending]) -> list[_Pending]:
        """Creations of the same name, one of which will be refused: one after the other."""
        first: dict[str, _Pending] = {}
        later = [each for each in batch if first.setdefault(run_id_of(each[0]), each) is not each]
        self._pending[:0] = later
        return list(first.values())


def _answer(batch: list[_Pending], outcomes: Sequence[Receipt | TenureError]) -> None:
    for (_, answer), outcome in zip(batch, outcomes, strict=True):
        if answer.done():
            continue  # cancelled while waiting; the write stands nevertheless
        if isinstance(outcome, Receipt):
            answer.set_result(outcome)
        else:
            answer.set_exception(outcome)


def _answer_all(batch: list[_Pending], error: BaseException) -> None:
    """Nobody is left waiting, whatever a store does."""
    for _, answer in batch:
        if not answer.done():
            answer.set_exception(_outcome_unknown(error))


def _outcome_unknown(error: BaseException) -> Exception:
    """One exception object per waiter: a shared one would gather everybody's traceback. A store
    that is gone for good says so to each, or they would send again for ever."""
    if isinstance(error, StoreLost | StoreIncompatible):
        return copy(error)
    unavailable = StoreUnavailable(str(error) or type(error).__name__)
    unavailable.__cause__ = error
    return unavailable
