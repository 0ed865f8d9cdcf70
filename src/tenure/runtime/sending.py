"""One attempt at one callback, and what it means for the next."""

from __future__ import annotations

import asyncio
import logging

from tenure.model.outbox import Delivered, Delivery, GiveUp, Outcome, RetryLater
from tenure.model.retry import RetryPolicy
from tenure.ports.sender import CallbackSender, NotTaken

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
