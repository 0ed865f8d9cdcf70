"""Group commit (writes of many runs that are ready at the same moment share one commit), and
whether this process has been in contact with its store for long enough to take expired leases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from copy import copy
from typing import TypeVar

from tenure.aio import cancel_and_wait
from tenure.model.errors import StoreIncompatible, StoreLost, StoreUnavailable, TenureError
from tenure.model.leases import LATE, LateAnswers
from tenure.model.update import Receipt, Update, Write, run_id_of
from tenure.ports.store import BatchUpdates, ParallelBatches, RunStateStore

T = TypeVar("T")


class StoreContact:
    """When one event loop last lost contact with one store, shared by all its callers.

    An expired lease means that its owner did not renew. If the store was away, or this process was
    frozen (perhaps with all others), no owner could: for one renew interval after that, and after
    the start, expired leases are left alone, so that their owners can renew first. An error of any
    caller counts for the whole process: a worker without free slots makes no claims, and notices
    an outage only by its writes, renewals and heartbeats.
    """

    def __init__(self, renew_interval: float) -> None:
        self.needed = renew_interval
        self.lost()

    def lost(self) -> None:
        """The store did not answer: contact counts from now."""
        self.since = asyncio.get_running_loop().time()


class InTouch:
    """The contact of one caller: how long its calls usually take (this differs by call) and when
    it meant to wake up. Also counts from when it began."""

    def __init__(self, contact: StoreContact) -> None:
        self._contact = contact
        self._needed = contact.needed
        self._pace = LateAnswers()
        self._awake_since = self._due = asyncio.get_running_loop().time()

    @property
    def long_enough(self) -> bool:
        """Expired leases may be taken."""
        since = max(self._contact.since, self._awake_since)
        lasted = asyncio.get_running_loop().time() - since
        return lasted >= self._needed and not self._was_frozen

    async def asked(self, answer: Awaitable[T]) -> T:
        """Await a call of the store and note whether it answered."""
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
        """A call sent at loop time ``sent_at`` was answered. If that took much longer than this
        store usually needs, the process was out of contact, whatever the answer."""
        now, late = asyncio.get_running_loop().time(), max(LATE, self._needed / 2)
        if self._pace.was_away(sent_at, now, late=late, lease=3 * self._needed):
            self.lost()

    def lost(self) -> None:
        """The store did not answer."""
        self._contact.lost()

    def rests(self, until: float) -> None:
        """The caller sleeps, at the latest until loop time ``until``."""
        if self._was_frozen:
            self._awake_since = asyncio.get_running_loop().time()
        self._due = until

    def asks(self) -> None:
        """The caller waits for the store."""
        self.rests(asyncio.get_running_loop().time() + self._needed / 2)

    @property
    def _was_frozen(self) -> bool:
        return asyncio.get_running_loop().time() - self._due > self._needed / 2


LARGEST_BATCH = 500

_Pending = tuple[Write, "asyncio.Future[Receipt]"]


class GroupCommit:
    """Writes of all runs of a process, in as few commits as there is need for.

    There is no timer: writes gather while a commit is under way, and the next one takes them. An
    idle store is called at once, so a single run is as fast as without group commit. A caller is
    answered after the commit of its write: an acknowledged write is durable.

    If the store takes several batches at once, each is at most its share of the pending writes:
    store and process then work at the same time and not in turns. ``touch`` notes how each commit
    went.
    """

    def __init__(self, store: RunStateStore, touch: InTouch | None = None) -> None:
        self._store = store
        self._touch = touch
        self._batches = store if isinstance(store, BatchUpdates) else None
        self._at_once = store.batches_at_once if isinstance(store, ParallelBatches) else 1
        self._under_way = 0
        self._senders: set[asyncio.Task[None]] = set()
        self._pending: list[_Pending] = []
        self._beginning = False
        """A sender was started and has not taken its batch yet."""

    def write(self, write: Write) -> Awaitable[Receipt]:
        """Raises what ``update_run`` or ``create_run`` of the store would."""
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
        """Wait for the commits under way. Cancelled, it cancels them; their outcome is unknown."""
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
        except Exception as error:  # from an integrator's driver: the outcome is unknown
            raise _outcome_unknown(error) from error

    def _begin(self, store: BatchUpdates) -> None:
        self._beginning = True
        self._under_way += 1
        sender = asyncio.ensure_future(self._send(store))
        self._senders.add(sender)
        sender.add_done_callback(self._senders.discard)

    async def _send(self, store: BatchUpdates) -> None:
        """Starts in the loop's next iteration, so that writes made in this one come along."""
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
            # A locked run is no outage if others of its batch are written.
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
        """Writes of the same run go into different batches: creations of the same name, one of
        which will be refused."""
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
    """No caller is left waiting, whatever the store raised."""
    for _, answer in batch:
        if not answer.done():
            answer.set_exception(_outcome_unknown(error))


def _outcome_unknown(error: BaseException) -> Exception:
    """One exception object per caller: a shared one would collect every caller's traceback. A store
    that is gone for good raises its own error, or callers would retry for ever."""
    if isinstance(error, StoreLost | StoreIncompatible):
        return copy(error)
    unavailable = StoreUnavailable(str(error) or type(error).__name__)
    unavailable.__cause__ = error
    return unavailable
