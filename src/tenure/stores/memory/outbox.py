"""Callbacks that wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from tenure.model.codec import copied, storable
from tenure.model.errors import DeliveryNotFound, TenureError
from tenure.model.outbox import (
    Delivery,
    Outcome,
    RetryLater,
    Settlement,
    as_callback_error,
    origin_of,
    requeue,
    settle,
)
from tenure.model.query import Page, bounded_limit, decode_cursor, encode_cursor
from tenure.model.status import DeliveryState
from tenure.stores.lease_clock import Instant
from tenure.stores.memory.state import MemoryState


class MemoryOutbox:
    """``Outbox`` and ``OutboxBatches``."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

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
        state = self._state
        with state.lock:
            instant = state.clock.read()
            until = instant.until(seconds)
            waiting = [state.deliveries[delivery_id] for delivery_id in state.waiting]
            claimed = [delivery for delivery in waiting if delivery.token == token]
            if not claimed:
                most = limit if per_origin is None else per_origin
                wanted = _named(self._due(waiting, instant), only)
                due = _spread(wanted, most, frozenset(except_origins))
                claimed = [
                    replace(delivery, token=token) for delivery in islice(due, max(limit, 0))
                ]
            for delivery in claimed:
                state.deliveries[delivery.id] = delivery
                state.delivery_rests[delivery.id] = until
            return [copied(delivery) for delivery in claimed]

    def _due(self, waiting: list[Delivery], instant: Instant) -> list[Delivery]:
        """Of each run and target the first one not settled, unless it rests, or a sibling is in
        flight that was sent before a redelivery; soonest due first."""
        heads: dict[tuple[str, str], Delivery] = {}
        in_flight: set[tuple[str, str]] = set()
        for delivery in waiting:
            key = (delivery.run_id, delivery.target.name)
            if delivery.token is not None and self._rests(delivery, instant):
                in_flight.add(key)
            head = heads.get(key)
            if head is None or delivery.event.position < head.event.position:
                heads[key] = delivery
        due = [
            head
            for key, head in heads.items()
            if key not in in_flight and not self._rests(head, instant)
        ]
        return sorted(due, key=lambda delivery: delivery.due_at)

    def _rests(self, delivery: Delivery, instant: Instant) -> bool:
        return instant.is_live(self._state.delivery_rests.get(delivery.id))

    async def settle_delivery(self, delivery_id: str, token: str, outcome: Outcome) -> Delivery:
        with self._state.lock:
            return self._settle(Settlement(delivery_id, token, outcome))

    async def settle_deliveries(
        self, settlements: Sequence[Settlement]
    ) -> list[Delivery | TenureError]:
        with self._state.lock:
            return [self._settle_one_of_many(settlement) for settlement in settlements]

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
    ) -> tuple[list[Delivery | TenureError], list[Delivery]]:
        with self._state.lock:
            answers = await self.settle_deliveries(settlements)
            return answers, await self.claim_deliveries(
                token,
                limit=limit,
                seconds=seconds,
                per_origin=per_origin,
                except_origins=except_origins,
                only=only,
            )

    def _settle_one_of_many(self, settlement: Settlement) -> Delivery | TenureError:
        try:
            return self._settle(settlement)
        except TenureError as error:
            return error

    def _settle(self, settlement: Settlement) -> Delivery:
        state = self._state
        delivery = self._find(settlement.delivery_id)
        outcome = storable(delivery.run_id, settlement).outcome
        instant = state.clock.read()
        rest = instant.rest(outcome.delay if isinstance(outcome, RetryLater) else 0.0)
        settled = settle(delivery, settlement.token, outcome, at=instant.now, due_at=rest.wall)
        if settled is not delivery:
            state.deliveries[delivery.id] = settled
            state.delivery_rests[delivery.id] = rest
            if settled.state is not DeliveryState.WAITING:
                del state.waiting[delivery.id]
                if settled.died_at or delivery.died_at:
                    self._show_newest_dead_letter(settled.run_id)
        return copied(settled)

    def _show_newest_dead_letter(self, run_id: str) -> None:
        dead = [
            (delivery.died_at, number, delivery)
            for number, delivery in enumerate(self._state.deliveries.values())
            if delivery.run_id == run_id and delivery.died_at is not None
        ]
        newest = max(dead)[-1] if dead else None
        stored = self._state.find(run_id)
        stored.snapshot = replace(
            stored.snapshot, callback_error=as_callback_error(newest) if newest else None
        )

    async def list_deliveries(
        self,
        *,
        state: DeliveryState | None = None,
        run_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Delivery]:
        (before,) = decode_cursor("deliveries", cursor, 1) if cursor else (1 << 62,)
        limit = bounded_limit(limit)
        with self._state.lock:
            numbers = self._state.delivery_numbers
            found = [
                (number, delivery)
                for delivery in self._state.deliveries.values()
                if (number := numbers[delivery.id]) < before
                and (state is None or delivery.state is state)
                and (run_id is None or delivery.run_id == run_id)
            ]
            found.reverse()
            page = found[:limit]
            return Page(
                items=tuple(copied(delivery) for _, delivery in page),
                cursor=encode_cursor("deliveries", page[-1][0]) if len(found) > limit else None,
            )

    async def get_delivery(self, delivery_id: str) -> Delivery:
        with self._state.lock:
            return copied(self._find(delivery_id))

    async def requeue_delivery(self, delivery_id: str) -> Delivery:
        with self._state.lock:
            again = requeue(self._find(delivery_id), self._state.clock.now())
            self._state.deliveries[delivery_id] = again
            self._state.waiting[delivery_id] = None
            return copied(again)

    def _find(self, delivery_id: str) -> Delivery:
        delivery = self._state.deliveries.get(delivery_id)
        if delivery is None:
            raise DeliveryNotFound(delivery_id)
        return delivery


def _named(due: list[Delivery], only: Collection[str] | None) -> list[Delivery]:
    if only is None:
        return due
    names = frozenset(only)
    return [delivery for delivery in due if delivery.id in names]


def _spread(
    due: Iterable[Delivery], per_origin: int, except_origins: frozenset[str]
) -> Iterator[Delivery]:
    """So many of each origin at most, and none of some."""
    taken: Counter[str] = Counter()
    for delivery in due:
        origin = origin_of(delivery.target)
        if origin not in except_origins and taken[origin] < per_origin:
            taken[origin] += 1
            yield delivery
