"""Attempts that ended, many in one transaction.

*Who changes what.* A relay that holds a callback settles it: delivered, dead, or waiting as before.
If it is settled, the next of its run and target is shown to whoever claims (``blocked``). If a
letter died, or one that had died was delivered, its run shows the newest dead letter left
(``callback_error``). The owner adds callbacks, and holds the one they wait behind until its commit.
A person sends settled ones again. None of them ever takes back what another has done.

*All or nothing, for each.* A callback, the next one and what its run shows change in one commit. So
nobody has to remember that a run must still show something: it does, or the callback still waits,
whoever was stopped where.

*Nothing waits.* Each of these rows may be held by somebody else, for a moment or, by a person, for
long. Then that one callback is not settled, and whoever sent the outcome is told to send it again;
all others are. (An outcome nobody sends again is found out once more, when the claim has ended.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from tenure.model.codec import storable
from tenure.model.errors import DeliveryNotFound, TenureError
from tenure.model.outbox import (
    Delivered,
    Delivery,
    GiveUp,
    RetryLater,
    Settlement,
    as_callback_error,
    settle,
)
from tenure.model.status import DeliveryState
from tenure.model.update import MAX_LEASE_SECONDS
from tenure.stores import record_rows
from tenure.stores.postgres.connections import Connections, Purpose
from tenure.stores.postgres.delivery_rows import Changed, Kept, changed, delivery_of
from tenure.stores.postgres.names import can_be_stored
from tenure.stores.postgres.outbox import Outboxing, Wanted, lock, putting
from tenure.stores.postgres.patience import PAUSES, SHORT_PAUSES, pause
from tenure.stores.postgres.session import Call, Session

Answer = Delivery | TenureError


class _Written:
    """What a transaction is about to write."""

    def __init__(self) -> None:
        self.rows: dict[int, Changed] = {}
        """By number: whoever is settled twice is written once."""
        self.settled: set[tuple[int, str]] = set()
        """Runs and targets whose next callback may go out."""
        self.mourning: set[int] = set()
        """Runs whose newest dead letter may have changed."""


class _Work:
    """What is to be settled, and the answers so far."""

    def __init__(self, settlements: Sequence[Settlement]) -> None:
        self.settlements = settlements
        self.left = list(range(len(settlements)))
        self._answers: dict[int, Answer] = {}

    def answer(self, busy: set[str], answer_to: Callable[[Settlement], Answer]) -> None:
        """All but those that somebody else keeps us from."""
        asked, self.left = self.left, []
        for i in asked:
            settlement = self.settlements[i]
            if settlement.delivery_id in busy:
                self.left.append(i)
            else:
                self._answers[i] = answer_to(settlement)

    def all_answers(self, locked: Callable[[str], TenureError]) -> list[Answer]:
        for i in self.left:
            self._answers[i] = locked(self.settlements[i].delivery_id)
        return [self._answers[i] for i in range(len(self.settlements))]


class Settling:
    def __init__(self, connections: Connections, outboxing: Outboxing) -> None:
        self._connections = connections
        self._outboxing = outboxing

    async def one(self, settlement: Settlement) -> Delivery:
        (answer,) = await self._many([settlement], PAUSES)
        if isinstance(answer, TenureError):
            raise answer
        return answer

    async def many(self, settlements: Sequence[Settlement]) -> list[Answer]:
        return await self._many(settlements, SHORT_PAUSES)

    async def _many(
        self, settlements: Sequence[Settlement], pauses: Sequence[float]
    ) -> list[Answer]:
        work = _Work(settlements)
        async with self._connections.session(Purpose.WRITING) as session:
            await self._settle_left(session, work, pauses)
        return work.all_answers(self._outboxing.locked)

    async def many_and_claim(
        self,
        settlements: Sequence[Settlement],
        wanted: Wanted,
    ) -> tuple[list[Answer], list[Delivery]]:
        work = _Work(settlements)
        async with self._connections.session(Purpose.WRITING) as session:
            async with session.undone_on_error():
                calls = await self._settle(session, work)
                claimed = await self._outboxing.claim_after(session, calls, wanted)
            if work.left:
                await self._settle_left(session, work, SHORT_PAUSES[1:])
        return work.all_answers(self._outboxing.locked), claimed

    async def _settle_left(self, session: Session, work: _Work, pauses: Sequence[float]) -> None:
        for seconds in pauses:
            await pause(seconds)
            async with session.undone_on_error():
                calls = await self._settle(session, work)
                await session.together(*calls, ("commit",))
            if not work.left:
                return

    async def _settle(self, session: Session, work: _Work) -> list[Call]:
        """Begins the transaction: answers what can be, and tells what is still to be written.
        Refusals come before anything is."""
        settlements = work.settlements
        asked = [settlements[i].delivery_id for i in work.left]
        found, free = await lock(session, [name for name in asked if can_be_stored(name)])
        busy = {name for name, kept in found.items() if kept.number not in free}
        busy |= await _of_busy_runs(session, [settlements[i] for i in work.left], found)
        at, written = await session.now(), _Written()
        work.answer(busy, lambda each: _answer(each, found, written, at))
        calls: list[Call] = []
        if written.rows:
            calls.append(putting(list(written.rows.values())))
        if written.settled:
            seqs, targets = zip(*sorted(written.settled), strict=True)
            calls.append(("unblock_heads", list(seqs), list(targets)))
        if written.mourning:
            await session.together(*calls)
            calls = [await _showing_dead_letters(session, sorted(written.mourning))]
        return calls


async def _of_busy_runs(
    session: Session, settlements: Sequence[Settlement], found: dict[str, Kept]
) -> set[str]:
    """Lock the runs on which an outcome is to show: the callbacks of those that cannot be had."""
    mourned: dict[str, int] = {}
    for each in settlements:
        kept = found.get(each.delivery_id)
        if kept is not None and _shows_on_its_run(each, kept.delivery):
            mourned[each.delivery_id] = kept.seq
    if not mourned:
        return set()
    locked = await session.all("lock_mourned", sorted(set(mourned.values())))
    return {delivery_id for delivery_id, seq in mourned.items() if (seq,) not in locked}


def _shows_on_its_run(settlement: Settlement, delivery: Delivery) -> bool:
    if delivery.settled_token == settlement.token:
        return False  # sent again: that is done
    if isinstance(settlement.outcome, Delivered):
        return delivery.died_at is not None
    return isinstance(settlement.outcome, GiveUp)


async def _showing_dead_letters(session: Session, seqs: list[int]) -> Call:
    shown: list[dict[str, Any]] = []
    for seq, text in await session.all("newest_dead_letters", seqs):
        error = None
        if text is not None:
            error = record_rows.text(as_callback_error(delivery_of(text).delivery))
        shown.append({"seq": seq, "error": error})
    return ("show_dead_letters", record_rows.text(shown), seqs)


def _answer(
    settlement: Settlement, found: dict[str, Kept], written: _Written, at: datetime
) -> Answer:
    try:
        if settlement.delivery_id not in found:
            raise DeliveryNotFound(settlement.delivery_id)
        kept = found[settlement.delivery_id]
        delivery, outcome = kept.delivery, settlement.outcome
        if not isinstance(outcome, Delivered):  # the one that brings no value of its own
            outcome = storable(delivery.run_id, settlement).outcome
        delay = None
        if isinstance(outcome, RetryLater):
            delay = min(max(outcome.delay, 0.0), MAX_LEASE_SECONDS)
        due_at = at + timedelta(seconds=delay or 0.0)
        settled = settle(delivery, settlement.token, outcome, at=at, due_at=due_at)
    except TenureError as refusal:
        return refusal
    if settled is not delivery:
        found[delivery.id] = kept._replace(delivery=settled)
        written.rows[kept.number] = changed(kept.number, settled, delay)
        if settled.state is not DeliveryState.WAITING:
            written.settled.add((kept.seq, settled.target.name))
            if settled.died_at or delivery.died_at:
                written.mourning.add(kept.seq)
    return settled
