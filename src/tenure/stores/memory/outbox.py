"""Callbacks that wait."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from tenure.model.codec import copied
from tenure.model.errors import DeliveryNotFound
from tenure.model.outbox import Delivery, Outcome, RetryLater, as_callback_error, requeue, settle
from tenure.model.query import Page, bounded_limit, decode_cursor, encode_cursor
from tenure.model.status import DeliveryState
from tenure.stores.lease_clock import Instant
from tenure.stores.memory.state import MemoryState


class MemoryOutbox:
    """``Outbox``."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def claim_deliveries(
        self, token: str, *, limit: int = 100, seconds: float = 60.0
    ) -> list[Delivery]:
        state = self._state
        with state.lock:
            instant = state.clock.read()
            until = instant.until(seconds)
            held = [
                delivery
                for delivery in state.deliveries.values()
                if delivery.token == token and delivery.state is DeliveryState.WAITING
            ]
            due = [
                head
                for head in self._heads()
                if not self._rests(head, instant) and not self._in_flight(head, instant)
            ]
            due.sort(key=lambda delivery: delivery.due_at)
            claimed = held or [replace(delivery, token=token) for delivery in due[: max(limit, 0)]]
            for delivery in claimed:
                state.deliveries[delivery.id] = delivery
                state.delivery_rests[delivery.id] = until
            return [copied(delivery) for delivery in claimed]

    def _heads(self) -> Iterator[Delivery]:
        """Of each run and target the first one not settled: the only one that may go out."""
        heads: dict[tuple[str, str], Delivery] = {}
        for delivery in self._state.deliveries.values():
            if delivery.state is DeliveryState.WAITING:
                key = (delivery.run_id, delivery.target.name)
                head = heads.get(key)
                if head is None or delivery.event.position < head.event.position:
                    heads[key] = delivery
        return iter(heads.values())

    def _rests(self, delivery: Delivery, instant: Instant) -> bool:
        return instant.is_live(self._state.delivery_rests.get(delivery.id))

    def _in_flight(self, delivery: Delivery, instant: Instant) -> bool:
        """Held by a live claim: this one, or a sibling that was sent before a redelivery."""
        return any(
            self._rests(other, instant)
            for other in self._state.deliveries.values()
            if other.state is DeliveryState.WAITING
            and other.token is not None
            and other.run_id == delivery.run_id
            and other.target.name == delivery.target.name
        )

    async def settle_delivery(self, delivery_id: str, token: str, outcome: Outcome) -> Delivery:
        state = self._state
        with state.lock:
            instant = state.clock.read()
            delivery = self._find(delivery_id)
            rest = instant.rest(outcome.delay if isinstance(outcome, RetryLater) else 0.0)
            settled = settle(delivery, token, outcome, at=instant.now, due_at=rest.wall)
            if settled is not delivery:
                state.deliveries[delivery_id] = settled
                state.delivery_rests[delivery_id] = rest
            if settled.state is not DeliveryState.WAITING:
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

    async def requeue_delivery(self, delivery_id: str) -> Delivery:
        with self._state.lock:
            again = requeue(self._find(delivery_id), self._state.clock.now())
            self._state.deliveries[delivery_id] = again
            return copied(again)

    def _find(self, delivery_id: str) -> Delivery:
        delivery = self._state.deliveries.get(delivery_id)
        if delivery is None:
            raise DeliveryNotFound(delivery_id)
        return delivery
