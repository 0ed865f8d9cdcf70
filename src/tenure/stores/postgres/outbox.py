"""Callbacks that wait. Settling is a file apart."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from tenure.model.errors import DeliveryNotFound, StoreUnavailable
from tenure.model.outbox import Delivery, requeue
from tenure.model.query import Page, bounded_limit, decode_cursor, encode_cursor
from tenure.model.status import DeliveryState
from tenure.stores import record_rows
from tenure.stores.postgres.connections import Connections, Purpose
from tenure.stores.postgres.delivery_rows import Changed, Kept, changed, delivery_of
from tenure.stores.postgres.failures import DATA_ERRORS
from tenure.stores.postgres.index_ranges import newest_of
from tenure.stores.postgres.listing import Values
from tenure.stores.postgres.names import can_be_stored
from tenure.stores.postgres.patience import PAUSES, Busy, pause
from tenure.stores.postgres.session import Call, Session
from tenure.stores.postgres.statements import FRAGMENTS
from tenure.stores.postgres.watched import Row

_NEWEST = 1 << 62
_ORIGINS_AT_ONCE = 500


class Wanted(NamedTuple):
    """What ``claim_deliveries`` is asked for."""

    token: str
    limit: int
    seconds: float
    per_origin: int | None
    except_origins: Collection[str]
    only: Collection[str] | None


class Outboxing:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._next_origin = ""

    async def claim(self, wanted: Wanted) -> list[Delivery]:
        async with (
            self._connections.session(Purpose.WRITING) as session,
            session.undone_on_error(),
        ):
            return await self.claim_after(session, [("begin",), ("carefully",)], wanted)

    async def claim_after(
        self, session: Session, calls: Sequence[Call], wanted: Wanted
    ) -> list[Delivery]:
        """What ``calls`` of a transaction made eligible can be claimed; then commit."""
        *_, renewed, found = await session.together(
            *calls,
            ("renew_held_deliveries", wanted.token, wanted.seconds),
            ("origins_due", self._next_origin, _ORIGINS_AT_ONCE),
        )
        # Not renewed, it may go to somebody else before it was sent from here: it is left to him.
        left_to_others = [number for number, is_renewed in renewed if not is_renewed]
        ending: list[Call] = [("held_deliveries", wanted.token, left_to_others), ("commit",)]
        if not renewed:
            ending.insert(0, await self._holding(session, wanted, found))
        *_, held, _ = await session.together(*ending)
        return [delivery_of(text).delivery for (text,) in held]

    async def _holding(self, session: Session, wanted: Wanted, found: list[Row]) -> Call:
        limit = max(wanted.limit, 0)
        most = limit if wanted.per_origin is None else max(wanted.per_origin, 0)
        left_out = frozenset(filter(can_be_stored, wanted.except_origins))
        hold = (wanted.token, wanted.seconds)
        if wanted.only is not None:
            names = sorted(filter(can_be_stored, set(wanted.only)))
            return ("hold_named_deliveries", *hold, names, most, limit, list(left_out))
        origins = await self._origins(session, found, left_out)
        return ("hold_due_deliveries", *hold, origins, most, limit)

    async def _origins(
        self, session: Session, found: list[Row], left_out: frozenset[str]
    ) -> list[str]:
        """Where something waits, without those left out. These may fill any number of looks; each
        look begins with the last one of the look before."""
        for _ in range(1 + len(left_out) // (_ORIGINS_AT_ONCE - 1)):
            some = await self._some_origins(session, found)
            origins = [origin for origin in some if origin not in left_out]
            if origins or not self._next_origin:
                return origins
            found = await session.all("origins_due", self._next_origin, _ORIGINS_AT_ONCE)
        return []

    async def _some_origins(self, session: Session, found: list[Row]) -> list[str]:
        """All of them or, if they are very many, those whose turn it is to be looked at."""
        if self._next_origin and len(found) < _ORIGINS_AT_ONCE:
            found = found + await session.all("origins_due", "", _ORIGINS_AT_ONCE)
        origins = list(dict.fromkeys(origin for (origin,) in found))[:_ORIGINS_AT_ONCE]
        self._next_origin = origins[-1] if len(origins) == _ORIGINS_AT_ONCE else ""
        return origins

    async def requeue(self, delivery_id: str) -> Delivery:
        async with self._connections.session(Purpose.WRITING) as session:
            for seconds in PAUSES:
                await pause(seconds)
                try:
                    return await self._requeue(session, delivery_id)
                except Busy:
                    continue
        raise self.locked(delivery_id)

    async def _requeue(self, session: Session, delivery_id: str) -> Delivery:
        async with session.undone_on_error():
            before = ("keep_run_of_delivery", delivery_id)
            found, free = await lock(session, [delivery_id], before)
            kept = found.get(delivery_id)
            if kept is None:
                raise DeliveryNotFound(delivery_id)
            if kept.number not in free:
                raise Busy
            again = requeue(kept.delivery, await session.now())
            if again is not kept.delivery:
                await session.together(
                    putting([changed(kept.number, again, delay=0.0)]),
                    ("block_all_but_head", kept.seq, again.target.name),
                )
            await session.all("commit")
            return again

    def locked(self, delivery_id: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"callback {delivery_id}, its run or the callback behind it is locked in "
            f"{self._connections.address.place} by somebody else's transaction; nothing of it was "
            "written, send it again"
        )

    async def get(self, delivery_id: str) -> Delivery:
        async with self._connections.session(Purpose.READING) as session:
            try:
                found = await session.all("deliveries_by_id", [delivery_id])
            except DATA_ERRORS:
                found = []
        for (text,) in found:
            return delivery_of(text).delivery
        raise DeliveryNotFound(delivery_id)

    async def page(
        self, state: DeliveryState | None, run_id: str | None, limit: int, cursor: str | None
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


def page_statement(
    state: DeliveryState | None, run_id: str | None, before: int, limit: int
) -> tuple[str, list[Any]]:
    """(number, delivery) of those below ``before``, newest first."""
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


async def lock(
    session: Session, delivery_ids: list[str], *before: Call
) -> tuple[dict[str, Kept], set[int]]:
    """Begin a transaction, and read: what there is, and the numbers of those that nobody else can
    change any more, nor the next one that waits behind them."""
    try:
        *_, locked, held_up, texts = await session.together(
            ("begin",),
            ("carefully",),
            *before,
            ("lock_deliveries", delivery_ids),
            ("lock_following", delivery_ids),
            ("deliveries_by_id", delivery_ids),
        )
    except DATA_ERRORS as error:
        raise DeliveryNotFound(delivery_ids[0]) from error
    found = (delivery_of(text) for (text,) in texts)
    free = {number for (number,) in locked} - {number for (number,) in held_up}
    return {kept.delivery.id: kept for kept in found}, free


def putting(rows: Sequence[Changed]) -> Call:
    return ("put_deliveries", record_rows.text(rows), [row.number for row in rows])
