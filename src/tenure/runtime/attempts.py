"""One attempt at one callback, and what it means for the next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tenure.model.errors import DeliveryLost, StoreUnavailable, TenureError
from tenure.model.outbox import Delivered, Delivery, GiveUp, Outcome, RetryLater, Settlement
from tenure.model.retry import RetryPolicy
from tenure.model.status import DeliveryState
from tenure.ports.callbacks import CallbackSender, NotTaken, Outbox, OutboxBatches

_log = logging.getLogger("tenure.runtime")

_LONGEST_ERROR = 2000


NO_ANSWER = NotTaken(error="no answer in time", again=True)
CUT_SHORT = NotTaken(error="stopped while sending; the target may have got it", again=True)
"""We ended it ourselves. It counts like any other: a target that takes longer than those live who
send to it would else be tried for ever, and never be a dead letter that people see."""


async def attempt(sender: CallbackSender, delivery: Delivery, end_by: float) -> NotTaken | None:
    """The sender's answer, by ``end_by`` of the loop's time at the latest, whatever it does."""
    try:
        async with asyncio.timeout_at(end_by):
            return await ask(sender, delivery)
    except TimeoutError:
        return NO_ANSWER


async def ask(sender: CallbackSender, delivery: Delivery) -> NotTaken | None:
    """The sender's answer, whatever it raises."""
    try:
        return await sender.send(delivery)
    except asyncio.CancelledError:
        if _somebody_stops_us():
            raise
        return NotTaken(error="the sender was cancelled from within", again=True)
    except Exception as error:  # noqa: BLE001  a bug of a sender must cost no callback
        _log.exception("the sender failed on callback %s", delivery.id)
        return NotTaken(error=f"the sender failed: {type(error).__name__}", again=True)


def _somebody_stops_us() -> bool:
    """Or else the sender waited for something that was cancelled."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def outcome_of(
    answer: NotTaken | None, delivery: Delivery, policy: RetryPolicy, luck: float
) -> Outcome:
    """What becomes of the delivery. ``luck`` is a random number in [0, 1)."""
    if answer is None:
        return Delivered()
    error = _fit_to_store(answer.error)
    wait = None
    if answer.again:
        wait = policy.wait_after(delivery.attempts + 1, luck=luck, at_least=answer.not_before)
    return GiveUp(error) if wait is None else RetryLater(wait, error)


def _fit_to_store(error: str) -> str:
    """Bounded, and free of what no store can keep: a settlement must not fail over its wording."""
    return error[:_LONGEST_ERROR].encode(errors="replace").decode()


# The log's line for a callback that nobody will send again by itself.


def note_given_up(delivery: Delivery, error: str | None) -> None:
    _log.warning(
        "callback %s of run %s to %s is given up after %d attempt%s: %s",
        delivery.event.type,
        delivery.run_id,
        delivery.target.name,
        delivery.attempts,
        "" if delivery.attempts == 1 else "s",
        error,
    )


# Attempts that ended, until the store knows.
#
# After ``StoreUnavailable`` they are kept and sent again under the same token: the store recognises
# what it has settled. That goes on until it answers, also beyond the end of the claim, for as long
# as nobody else claims a callback its outcome is still welcome; then the answer is
# ``DeliveryLost``. If the store could not settle one of many (somebody else holds its rows), that
# one alone is kept, for a later turn.
#
# What goes out next is claimed in the same commit, if the store can: whoever waits for a claim then
# waits for one commit, however many attempts of others have ended.


LARGEST_BATCH = 500


class DeliveryClaim(NamedTuple):
    """As ``Outbox.claim_deliveries`` wants it."""

    token: str
    limit: int
    seconds: float
    per_origin: int
    except_origins: Sequence[str]
    only: Sequence[str] | None


class SettlementBatch:
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

    async def settle_and_claim(self, claim: DeliveryClaim) -> list[Delivery]:
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


# Has every callback of a run had its chance?


_PAGE = 500


async def all_tried(outbox: Outbox, run_id: str) -> bool:
    """Whether each was tried, or stands behind one that was and must be tried again."""
    waiting: list[Delivery] = []
    cursor = None
    while True:
        page = await outbox.list_deliveries(
            state=DeliveryState.WAITING, run_id=run_id, limit=_PAGE, cursor=cursor
        )
        waiting += page.items
        cursor = page.cursor
        if cursor is None:
            return not any(head.attempts == 0 for head in _heads(waiting))


def _heads(waiting: Iterable[Delivery]) -> Iterable[Delivery]:
    """Of each target the one that goes out next."""
    heads: dict[str, Delivery] = {}
    for delivery in waiting:
        head = heads.setdefault(delivery.target.name, delivery)
        if delivery.event.position < head.event.position:
            heads[delivery.target.name] = delivery
    return heads.values()
