"""How far this machine's clock is from the store's.

Ownership does not depend on it. What people read and type does: the times of logs and callbacks,
``--after``, ``--since``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from tenure.ports.store_clock import StoreClock

_ROUNDS = 7


class Answer(NamedTuple):
    asked_at: datetime
    """By the clock here."""
    told: datetime
    took: float
    """Seconds, there and back."""


async def clock_offset(store: StoreClock, now: Callable[[], datetime]) -> float:
    """Seconds by which the store's clock is ahead."""
    loop, answers = asyncio.get_running_loop(), []
    for _ in range(_ROUNDS):
        asked_at, start = now(), loop.time()
        told = await store.store_time()
        answers.append(Answer(asked_at, told, loop.time() - start))
    return offset(answers)


def offset(answers: Sequence[Answer]) -> float:
    """By the quickest answer, told when half of its time had passed: what the way there and the way
    back differ by is all that can be wrong."""
    quickest = min(answers, key=lambda answer: answer.took)
    halfway = quickest.asked_at + timedelta(seconds=quickest.took / 2)
    return (quickest.told - halfway).total_seconds()
