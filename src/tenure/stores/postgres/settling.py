"""Attempts that ended, many in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from tenure.model.codec import storable
from tenure.model.errors import DeliveryNotFound, TenureError
from tenure.model.outbox import (
    Delivered,
    Delivery,
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


class Settling:
    def __init__(self, connections: Connections, outboxing: Outboxing) -> None:
        self._connections = connections
        self._outboxing = outboxing

    async def one(self, settlement: Settlement) -> Delivery:
        (answer,) = await self.many([settlement])
        if isinstance(answer, TenureError):
            raise answer
        return answer

    async def many(self, settlements: Sequence[Settlement]) -> list[Answer]:
        async with (
            self._connections.session(Purpose.WRITING) as session,
            session.undone_on_error(),
        ):
            answers, calls = await self._settle(session, settlements)
            await session.together(*calls, ("commit",))
        return answers

    async def many_and_claim(
        self,
        settlements: Sequence[Settlement],
        wanted: Wanted,
    ) -> tuple[list[Answer], list[Delivery]]:
        async with (
            self._connections.session(Purpose.WRITING) as session,
            session.undone_on_error(),
        ):
            answers, calls = await self._settle(session, settlements)
            claimed = await self._outboxing.claim_after(session, calls, wanted)
        return answers, claimed

    async def _settle(
        self, session: Session, settlements: Sequence[Settlement]
    ) -> tuple[list[Answer], list[Call]]:
        """Begins the transaction: the answers, and what is still to be written. Refusals come
        before anything is."""
        writable = [each.delivery_id for each in settlements if can_be_stored(each.delivery_id)]
        found = await lock(session, writable)
        at, written = await session.now(), _Written()
        answers = [_answer(each, found, written, at) for each in settlements]
        calls: list[Call] = []
        if written.rows:
            calls.append(putting(list(written.rows.values())))
        if written.settled:
            seqs, targets = zip(*sorted(written.settled), strict=True)
            calls.append(("unblock_heads", list(seqs), list(targets)))
        if written.mourning:
            await session.together(*calls)
            calls = [await _showing_dead_letters(session, sorted(written.mourning))]
        return answers, calls


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
