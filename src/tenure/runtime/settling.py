"""Attempts that ended, until the store knows.

After ``StoreUnavailable`` they are kept and sent again under the same token: the store recognises
what it has settled. That goes on until it answers, also beyond the end of the claim, for as long
as nobody else claims a callback its outcome is still welcome; then the answer is ``DeliveryLost``.
If the store could not settle one of many (somebody else holds its rows), that one alone is kept,
for a later turn.

What goes out next is claimed in the same commit, if the store can: whoever waits for a claim then
waits for one commit, however many attempts of others have ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tenure.model.errors import DeliveryLost, StoreUnavailable, TenureError
from tenure.model.outbox import Delivery, Settlement
from tenure.model.status import DeliveryState
from tenure.ports.outbox import Outbox, OutboxBatches
from tenure.runtime.given_up import note_given_up

LARGEST_BATCH = 500

_log = logging.getLogger("tenure.runtime")


class Claim(NamedTuple):
    """As ``Outbox.claim_deliveries`` wants it."""

    token: str
    limit: int
    seconds: float
    per_origin: int
    except_origins: Sequence[str]
    only: Sequence[str] | None


class Settling:
    """``settled`` hears of each that the store has taken."""

    def __init__(self, outbox: Outbox, settled: Callable[[Delivery], None]) -> None:
        self._outbox = outbox
        self._batches = outbox if isinstance(outbox, OutboxBatches) else None
        self._settled = settled
        self._ended: list[Settlement] = []
        self._later: list[Settlement] = []

    def __len__(self) -> int:
        return len(self._ended) + len(self._later)

    @property
    def at_once(self) -> bool:
        """Something ended that the store has not been told of since."""
        return bool(self._ended)

    def add(self, settlement: Settlement) -> None:
        self._ended.append(settlement)

    async def settle(self) -> None:
        """All that has ended by now. Whatever comes out of here, nothing unanswered is dropped."""
        self._try_once_more()
        left = len(self._ended)
        while left > 0:
            batch = self._ended[: LARGEST_BATCH if self._batches else 1]
            self._answered(batch, await self._ask(batch))
            left -= len(batch)

    async def settle_and_claim(self, claim: Claim) -> list[Delivery]:
        self._try_once_more()
        batch = self._ended[:LARGEST_BATCH]
        if not batch or self._batches is None:
            await self.settle()
            return await self._outbox.claim_deliveries(
                claim.token,
                limit=claim.limit,
                seconds=claim.seconds,
                per_origin=claim.per_origin,
                except_origins=claim.except_origins,
                only=claim.only,
            )
        answers, claimed = await self._batches.settle_and_claim(
            batch,
            claim.token,
            limit=claim.limit,
            seconds=claim.seconds,
            per_origin=claim.per_origin,
            except_origins=claim.except_origins,
            only=claim.only,
        )
        self._answered(batch, answers)
        return claimed

    def _try_once_more(self) -> None:
        """After all others: however many they are, they are in nobody's way."""
        self._ended += self._later
        self._later = []

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

    def _answered(self, batch: list[Settlement], answers: list[Delivery | TenureError]) -> None:
        del self._ended[: len(batch)]
        for settlement, answer in zip(batch, answers, strict=True):
            if isinstance(answer, StoreUnavailable):
                self._later.append(settlement)
                continue
            _note(settlement, answer)
            if isinstance(answer, Delivery):
                self._settled(answer)


def _note(settlement: Settlement, answer: Delivery | TenureError) -> None:
    match answer:
        case Delivery(state=DeliveryState.DEAD):
            note_given_up(answer, answer.last_error)
        case DeliveryLost():
            _log.info("callback %s went to another relay meanwhile", settlement.delivery_id)
        case TenureError():
            _log.warning("callback %s cannot be settled: %s", settlement.delivery_id, answer)
