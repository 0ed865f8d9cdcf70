"""Attempts at callbacks: one attempt and its outcome, the batch of ended attempts that the store
has not acknowledged yet, and whether every callback of a run was tried. Attempts of steps are in
``runtime.executor``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from tenure.model.errors import DeliveryLost, StoreUnavailable, TenureError
from tenure.model.outbox import Delivered, Delivery, GiveUp, Outcome, RetryLater, Settlement
from tenure.model.retry_policy import RetryPolicy
from tenure.model.status import DeliveryState
from tenure.ports.callbacks import CallbackSender, DeliveryClaim, NotTaken, Outbox, OutboxBatches

_log = logging.getLogger("tenure.runtime")

_MAX_ERROR_CHARS = 2000


NO_ANSWER = NotTaken(error="no answer in time", again=True)
CUT_SHORT = NotTaken(error="stopped while sending; the target may have got it", again=True)
"""The relay ended it. It counts like any other attempt: else a target that takes longer than every
sending process lives would be tried for ever and never become a visible dead letter."""


async def attempt(sender: CallbackSender, delivery: Delivery, end_by: float) -> NotTaken | None:
    """The sender's answer, or ``NO_ANSWER`` at loop time ``end_by``. ``None``: delivered."""
    try:
        async with asyncio.timeout_at(end_by):
            return await ask(sender, delivery)
    except TimeoutError:
        return NO_ANSWER


async def ask(sender: CallbackSender, delivery: Delivery) -> NotTaken | None:
    """The sender's answer; anything it raises counts as a failed attempt."""
    try:
        return await sender.send(delivery)
    except asyncio.CancelledError:
        if _is_cancelled():
            raise
        return NotTaken(error="the sender was cancelled from within", again=True)
    except Exception as error:  # noqa: BLE001  a bug of a sender must cost no callback
        _log.exception("the sender failed on callback %s", delivery.id)
        return NotTaken(error=f"the sender failed: {type(error).__name__}", again=True)


def _is_cancelled() -> bool:
    """Whether this task itself is cancelled, not only something the sender waited for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def outcome_of(
    answer: NotTaken | None, delivery: Delivery, policy: RetryPolicy, luck: float
) -> Outcome:
    """What an attempt means for the delivery. ``luck``: a random number in [0, 1)."""
    if answer is None:
        return Delivered()
    error = _fit_to_store(answer.error)
    wait = None
    if answer.again:
        wait = policy.wait_after(delivery.attempts + 1, luck=luck, at_least=answer.not_before)
    return GiveUp(error) if wait is None else RetryLater(wait, error)


def _fit_to_store(error: str) -> str:
    """Bounded and encodable, so that a settlement never fails because of its error text."""
    return error[:_MAX_ERROR_CHARS].encode(errors="replace").decode()


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


LARGEST_BATCH = 500


class SettlementBatch:
    """Ended attempts until the store acknowledges them.

    After ``StoreUnavailable`` they are kept and sent again under the same token: the store
    recognises what it has settled. This is repeated until it answers, also after the claim has
    ended: an outcome is accepted until another relay claims the callback (``DeliveryLost``). One
    settlement of a batch that the store could not write (its rows are locked) is kept alone, for a
    later turn.

    Where the store can, the next claim shares the commit of the settlements.

    ``settled`` is called with each delivery that the store has settled.
    """

    def __init__(self, outbox: Outbox, settled: Callable[[Delivery], None]) -> None:
        self._outbox = outbox
        self._batches = outbox if isinstance(outbox, OutboxBatches) else None
        self._settled = settled
        self._ended: list[Settlement] = []
        self._locked: list[Settlement] = []

    def __len__(self) -> int:
        return len(self._ended) + len(self._locked)

    @property
    def at_once(self) -> bool:
        """Whether an attempt has ended since the last call of the store."""
        return bool(self._ended)

    def add(self, settlement: Settlement) -> None:
        self._ended.append(settlement)

    async def settle(self) -> None:
        """Settle all that has ended by now. If it raises, what is unacknowledged is kept."""
        self._requeue_locked()
        left = len(self._ended)
        while left > 0:
            batch = self._ended[: LARGEST_BATCH if self._batches else 1]
            self._take_answers(batch, await self._ask(batch))
            left -= len(batch)

    async def settle_and_claim(self, claim: DeliveryClaim) -> list[Delivery]:
        self._requeue_locked()
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
        self._take_answers(batch, answers)
        return claimed

    def _requeue_locked(self) -> None:
        """Locked ones come last, so that they delay no other settlement."""
        self._ended += self._locked
        self._locked = []

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

    def _take_answers(self, batch: list[Settlement], answers: list[Delivery | TenureError]) -> None:
        del self._ended[: len(batch)]
        for settlement, answer in zip(batch, answers, strict=True):
            if isinstance(answer, StoreUnavailable):
                self._locked.append(settlement)
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


_PAGE_SIZE = 500


async def all_tried(outbox: Outbox, run_id: str) -> bool:
    """Whether each callback of the run was tried, or waits behind one that was."""
    waiting: list[Delivery] = []
    cursor = None
    while True:
        page = await outbox.list_deliveries(
            state=DeliveryState.WAITING, run_id=run_id, limit=_PAGE_SIZE, cursor=cursor
        )
        waiting += page.items
        cursor = page.cursor
        if cursor is None:
            return not any(head.attempts == 0 for head in _heads(waiting))


def _heads(waiting: Iterable[Delivery]) -> Iterable[Delivery]:
    """The next callback of each target."""
    heads: dict[str, Delivery] = {}
    for delivery in waiting:
        head = heads.setdefault(delivery.target.name, delivery)
        if delivery.event.position < head.event.position:
            heads[delivery.target.name] = delivery
    return heads.values()
