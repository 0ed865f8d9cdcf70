"""Callbacks: claimed, settled and requeued.

Settling a callback as delivered or dead unblocks the next one of its run and target (``blocked``),
and updates the newest dead letter that its run shows (``callback_error``); all of that is one
commit. The owner that adds a callback locks the one before it until its commit.

No call waits for a row that another transaction has locked: that callback is not settled, and the
relay gets an error and sends its outcome again; all others of the batch are settled. If an outcome
is not sent again, the callback is sent again when the claim has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from tenure.model.codec import storable
from tenure.model.errors import DeliveryNotFound, StoreUnavailable, TenureError
from tenure.model.outbox import (
    Delivered,
    Delivery,
    GiveUp,
    Outcome,
    RetryLater,
    Settlement,
    as_callback_error,
    requeue,
    settle,
)
from tenure.model.query import Page, bounded_limit, decode_cursor, encode_cursor
from tenure.model.status import DeliveryState
from tenure.model.update import MAX_LEASE_SECONDS
from tenure.ports.callbacks import DeliveryClaim
from tenure.stores import rows as record_rows
from tenure.stores.postgres.connection import (
    PAUSES_S,
    SHORT_PAUSES_S,
    Busy,
    Row,
    Session,
    pause,
    until_free,
)
from tenure.stores.postgres.errors import DATA_ERRORS
from tenure.stores.postgres.pools import Connections, Purpose
from tenure.stores.postgres.rows import (
    ChangedDeliveryRow,
    can_be_stored,
    changed_delivery,
    delivery_of,
)
from tenure.stores.postgres.statements import FRAGMENTS, Call, Values, newest_of
from tenure.stores.rows import Kept

_NEWEST = 1 << 62
_ORIGINS_AT_ONCE = 500

Answer = Delivery | TenureError


class _Written:
    """The changes of a transaction."""

    def __init__(self) -> None:
        self.rows: dict[int, ChangedDeliveryRow] = {}
        """By number: one that is settled twice is written once."""
        self.settled: set[tuple[int, str]] = set()
        """Runs and targets whose next callback may be sent."""
        self.failing: set[int] = set()
        """Runs whose newest dead letter may have changed."""


class _Work:
    """Settlements, and the answers so far."""

    def __init__(self, settlements: Sequence[Settlement]) -> None:
        self.settlements = settlements
        self.left = list(range(len(settlements)))
        self._answers: dict[int, Answer] = {}

    def answer(self, busy: set[str], answer_to: Callable[[Settlement], Answer]) -> None:
        """All but those that another transaction has locked."""
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


class OutboxCalls:
    _connections: Connections
    _next_origin = ""

    async def claim_deliveries(
        self,
        token: str,
        *,
        limit: int = 100,
        seconds: float = 60.0,
        per_origin: int | None = None,
        except_origins: Collection[str] = (),
        only: Collection[str] | None = None,
    ) -> list[Delivery]:
        wanted = DeliveryClaim(token, limit, seconds, per_origin, except_origins, only)
        async with self._connections.session(Purpose.WRITING) as session, session.undone_on_error():
            return await self._claim_after(session, [("begin",), ("carefully",)], wanted)

    async def settle_delivery(self, delivery_id: str, token: str, outcome: Outcome) -> Delivery:
        (answer,) = await self._settle_all([Settlement(delivery_id, token, outcome)], PAUSES_S)
        if isinstance(answer, TenureError):
            raise answer
        return answer

    async def settle_deliveries(self, settlements: Sequence[Settlement]) -> list[Answer]:
        return await self._settle_all(settlements, SHORT_PAUSES_S)

    async def settle_and_claim(
        self,
        settlements: Sequence[Settlement],
        token: str,
        *,
        limit: int = 100,
        seconds: float = 60.0,
        per_origin: int | None = None,
        except_origins: Collection[str] = (),
        only: Collection[str] | None = None,
    ) -> tuple[list[Answer], list[Delivery]]:
        wanted = DeliveryClaim(token, limit, seconds, per_origin, except_origins, only)
        work = _Work(settlements)
        async with self._connections.session(Purpose.WRITING) as session:
            async with session.undone_on_error():
                calls = await self._settle(session, work)
                claimed = await self._claim_after(session, calls, wanted)
            if work.left:
                await self._settle_left(session, work, SHORT_PAUSES_S[1:])
        return work.all_answers(self._locked_delivery), claimed

    async def list_deliveries(
        self,
        *,
        state: DeliveryState | None = None,
        run_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Delivery]:
        (before,) = decode_cursor("deliveries", cursor, 1) if cursor else (_NEWEST,)
        limit = bounded_limit(limit)
        statement, values = page_statement(state, run_id, before, limit + 1)
        async with self._connections.session(Purpose.READING) as session:
            try:
                found = await session.carefully(statement, values)
            except DATA_ERRORS:
                found = []
        return Page(
            items=tuple(delivery_of(text).delivery for _, text in found[:limit]),
            cursor=encode_cursor("deliveries", found[limit - 1][0]) if len(found) > limit else None,
        )

    async def get_delivery(self, delivery_id: str) -> Delivery:
        async with self._connections.session(Purpose.READING) as session:
            try:
                found = await session.all("deliveries_by_id", [delivery_id])
            except DATA_ERRORS:
                found = []
        for (text,) in found:
            return delivery_of(text).delivery
        raise DeliveryNotFound(delivery_id)

    async def requeue_delivery(self, delivery_id: str) -> Delivery:
        async with self._connections.session(Purpose.WRITING) as session:
            return await until_free(
                lambda: self._requeue(session, delivery_id), self._locked_delivery(delivery_id)
            )

    # Claiming.

    async def _claim_after(
        self, session: Session, calls: Sequence[Call], wanted: DeliveryClaim
    ) -> list[Delivery]:
        """Claim, also what ``calls`` of the same transaction unblocked, and commit."""
        *_, renewed, found = await session.together(
            *calls,
            ("renew_held_deliveries", wanted.token, wanted.seconds),
            ("origins_due", self._next_origin, _ORIGINS_AT_ONCE),
        )
        # One that was not renewed may be claimed by another relay before this one sends it.
        left_to_others = [number for number, is_renewed in renewed if not is_renewed]
        ending: list[Call] = [("held_deliveries", wanted.token, left_to_others), ("commit",)]
        if not renewed:
            ending.insert(0, await self._holding(session, wanted, found))
        *_, held, _ = await session.together(*ending)
        return [delivery_of(text).delivery for (text,) in held]

    async def _holding(self, session: Session, wanted: DeliveryClaim, found: list[Row]) -> Call:
        limits, hold = (wanted.most_per_origin, wanted.most), (wanted.token, wanted.seconds)
        left_out = frozenset(filter(can_be_stored, wanted.except_origins))
        if wanted.only is not None:
            names = sorted(filter(can_be_stored, set(wanted.only)))
            return ("hold_named_deliveries", *hold, names, *limits, list(left_out))
        origins = await self._origins(session, found, left_out)
        return ("hold_due_deliveries", *hold, origins, *limits)

    async def _origins(
        self, session: Session, found: list[Row], left_out: frozenset[str]
    ) -> list[str]:
        """Origins with a delivery due, except these, which may fill any number of pages."""
        for _ in range(1 + len(left_out) // (_ORIGINS_AT_ONCE - 1)):
            some = await self._some_origins(session, found)
            origins = [origin for origin in some if origin not in left_out]
            if origins or not self._next_origin:
                return origins
            found = await session.all("origins_due", self._next_origin, _ORIGINS_AT_ONCE)
        return []

    async def _some_origins(self, session: Session, found: list[Row]) -> list[str]:
        """All of them, or the next page of very many."""
        if self._next_origin and len(found) < _ORIGINS_AT_ONCE:
            found = found + await session.all("origins_due", "", _ORIGINS_AT_ONCE)
        origins = list(dict.fromkeys(origin for (origin,) in found))[:_ORIGINS_AT_ONCE]
        self._next_origin = origins[-1] if len(origins) == _ORIGINS_AT_ONCE else ""
        return origins

    async def _requeue(self, session: Session, delivery_id: str) -> Delivery:
        async with session.undone_on_error():
            before = ("keep_run_of_delivery", delivery_id)
            found, free, at = await _lock(session, [delivery_id], before)
            kept = found.get(delivery_id)
            if kept is None:
                raise DeliveryNotFound(delivery_id)
            if kept.number not in free:
                raise Busy
            again = requeue(kept.delivery, at)
            if again is not kept.delivery:
                await session.together(
                    _putting([changed_delivery(kept.number, again, delay=0.0)]),
                    ("block_all_but_head", kept.seq, again.target.name),
                )
            await session.all("commit")
            return again

    def _locked_delivery(self, delivery_id: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"callback {delivery_id}, its run or the callback behind it is locked in "
            f"{self._connections.address.place} by another transaction; nothing of it was "
            "written, send it again"
        )

    # Settling.

    async def _settle_all(
        self, settlements: Sequence[Settlement], pauses: Sequence[float]
    ) -> list[Answer]:
        work = _Work(settlements)
        async with self._connections.session(Purpose.WRITING) as session:
            await self._settle_left(session, work, pauses)
        return work.all_answers(self._locked_delivery)

    async def _settle_left(self, session: Session, work: _Work, pauses: Sequence[float]) -> None:
        for seconds in pauses:
            await pause(seconds)
            async with session.undone_on_error():
                calls = await self._settle(session, work)
                await session.together(*calls, ("commit",))
            if not work.left:
                return

    async def _settle(self, session: Session, work: _Work) -> list[Call]:
        """Begin the transaction, answer the settlements, and return the statements to execute."""
        settlements = work.settlements
        asked = [settlements[i].delivery_id for i in work.left]
        found, free, at = await _lock(session, [name for name in asked if can_be_stored(name)])
        busy = {name for name, kept in found.items() if kept.number not in free}
        busy |= await _of_busy_runs(session, [settlements[i] for i in work.left], found)
        written = _Written()
        work.answer(busy, lambda each: _answer(each, found, written, at))
        calls: list[Call] = []
        if written.rows:
            calls.append(_putting(list(written.rows.values())))
        if written.settled:
            seqs, targets = zip(*sorted(written.settled), strict=True)
            calls.append(("unblock_heads", list(seqs), list(targets)))
        if written.failing:
            await session.together(*calls)
            calls = [await _showing_dead_letters(session, sorted(written.failing))]
        return calls


async def _of_busy_runs(
    session: Session, settlements: Sequence[Settlement], found: dict[str, Kept]
) -> set[str]:
    """Lock the runs whose dead letter may change; returns the callbacks of those that are busy."""
    shown: dict[str, int] = {}
    for each in settlements:
        kept = found.get(each.delivery_id)
        if kept is not None and _shows_on_its_run(each, kept.delivery):
            shown[each.delivery_id] = kept.seq
    if not shown:
        return set()
    locked = await session.all("lock_failing_runs", sorted(set(shown.values())))
    return {delivery_id for delivery_id, seq in shown.items() if (seq,) not in locked}


def _shows_on_its_run(settlement: Settlement, delivery: Delivery) -> bool:
    if delivery.settled_token == settlement.token:
        return False  # a repeated settlement
    if isinstance(settlement.outcome, Delivered):
        return delivery.died_at is not None
    return isinstance(settlement.outcome, GiveUp)


async def _showing_dead_letters(session: Session, seqs: list[int]) -> Call:
    rows: list[dict[str, Any]] = []
    for seq, text in await session.all("newest_dead_letters", seqs):
        error = None
        if text is not None:
            error = record_rows.text(as_callback_error(delivery_of(text).delivery))
        rows.append({"seq": seq, "error": error})
    return ("show_dead_letters", record_rows.text(rows), seqs)


def _answer(
    settlement: Settlement, found: dict[str, Kept], written: _Written, at: datetime
) -> Answer:
    try:
        if settlement.delivery_id not in found:
            raise DeliveryNotFound(settlement.delivery_id)
        kept = found[settlement.delivery_id]
        delivery, outcome = kept.delivery, settlement.outcome
        if not isinstance(outcome, Delivered):  # which has no values to check
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
        written.rows[kept.number] = changed_delivery(kept.number, settled, delay)
        if settled.state is not DeliveryState.WAITING:
            written.settled.add((kept.seq, settled.target.name))
            if settled.died_at or delivery.died_at:
                written.failing.add(kept.seq)
    return settled


async def _lock(
    session: Session, delivery_ids: list[str], *before: Call
) -> tuple[dict[str, Kept], set[int], datetime]:
    """Begin a transaction, lock, and read: the deliveries, the numbers of those that are locked
    here together with the next one behind them, and the time (an earlier answer may lie behind)."""
    try:
        *_, locked, held_up, texts, ((at,),) = await session.together(
            ("begin",),
            ("carefully",),
            *before,
            ("lock_deliveries", delivery_ids),
            ("lock_following", delivery_ids),
            ("deliveries_by_id", delivery_ids),
            ("clock",),
        )
    except DATA_ERRORS as error:
        raise DeliveryNotFound(delivery_ids[0]) from error
    found = (delivery_of(text) for (text,) in texts)
    free = {number for (number,) in locked} - {number for (number,) in held_up}
    return {kept.delivery.id: kept for kept in found}, free, session.heard(at)


def _putting(rows: Sequence[ChangedDeliveryRow]) -> Call:
    return ("put_deliveries", record_rows.text(rows), [row.number for row in rows])


def page_statement(
    state: DeliveryState | None, run_id: str | None, before: int, limit: int
) -> tuple[str, list[Any]]:
    """Selects (number, delivery) below ``before``, newest first."""
    values = Values()
    border = values.bind(before)
    if run_id is not None:
        run = f"(select seq from tenure.runs where run_id = {values.bind(run_id)})"
        where, order = newest_of([("d.seq", run)], "d.number", border)
        if state is not None:
            where += f" and d.state = {values.bind(state.value)}"
    elif state is not None:
        bound = values.bind(state.value)
        where, order = newest_of([("d.state", bound)], "d.number", border)
    else:
        where, order = f"d.number < {border}", "d.number desc"
    statement = (
        f"select d.number, {FRAGMENTS['delivery']}::text from ("
        f"select * from tenure.deliveries d where {where} "
        f"order by {order} limit {values.bind(limit)}) d, "
        f"{FRAGMENTS['of_its_run']} order by d.number desc"
    )
    return statement, values.all
