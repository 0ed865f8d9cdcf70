"""Attempts that ended, until the store knows.

After ``StoreUnavailable`` they are kept and sent again under the same token: the store recognises
what it has settled. That goes on until it answers, also beyond the end of the claim, for as long
as nobody else claims a callback its outcome is still welcome; then the answer is ``DeliveryLost``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tenure.model.errors import DeliveryLost, StoreUnavailable, TenureError
from tenure.model.outbox import Delivery, Settlement
from tenure.model.status import DeliveryState
from tenure.ports.outbox import Outbox, OutboxBatches

LARGEST_BATCH = 500

_log = logging.getLogger("tenure.runtime")


class Settling:
    """``settled`` hears of each that the store has taken."""

    def __init__(self, outbox: Outbox, settled: Callable[[Delivery], None]) -> None:
        self._outbox = outbox
        self._settled = settled
        self._batches = outbox if isinstance(outbox, OutboxBatches) else None
        self._ended: list[Settlement] = []

    def __len__(self) -> int:
        return len(self._ended)

    def add(self, settlement: Settlement) -> None:
        self._ended.append(settlement)

    async def settle(self) -> None:
        """All that has ended by now. Whatever comes out of here, nothing unanswered is dropped."""
        left = len(self._ended)
        while left > 0:
            batch = self._ended[: LARGEST_BATCH if self._batches else 1]
            answers = await self._ask(batch)
            del self._ended[: len(batch)]
            left -= len(batch)
            for settlement, answer in zip(batch, answers, strict=True):
                _note(settlement, answer)
                if isinstance(answer, Delivery):
                    self._settled(answer)

    async def _ask(self, batch: list[Settlement]) -> list[Delivery | TenureError]:
        if self._batches is not None:
            return await self._batches.settle_deliveries(batch)
        (settlement,) = batch
        try:
            return [
                await self._outbox.settle_delivery(
                    settlement.delivery_id, settlement.token, settlement.outcome
                )
            ]
        except StoreUnavailable:
            raise
        except TenureError as refused:
            return [refused]


def _note(settlement: Settlement, answer: Delivery | TenureError) -> None:
    match answer:
        case Delivery(state=DeliveryState.DEAD):
            _log.warning(
                "callback %s of run %s to %s is given up after %d attempts: %s",
                answer.event.type,
                answer.run_id,
                answer.target.name,
                answer.attempts,
                answer.last_error,
            )
        case DeliveryLost():
            _log.info("callback %s went to another relay meanwhile", settlement.delivery_id)
        case TenureError():
            _log.warning("callback %s cannot be settled: %s", settlement.delivery_id, answer)
