"""Sending again what may not have arrived.

After ``StoreUnavailable`` nobody knows whether a write happened. It is sent again as it was: the
store recognises what it has seen, and answers as it did the first time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeVar

from tenure.model.errors import StoreUnavailable
from tenure.model.retry import RetryPolicy
from tenure.runtime.waiting import pause

T = TypeVar("T")

PATIENCE = RetryPolicy(attempts=6, delay=0.05, backoff=3.0, max_delay=2.0, jitter=0.5)
"""For what somebody waits for: a few seconds, then the error is theirs."""
ENDLESS = RetryPolicy(attempts=2**62, delay=0.05, backoff=2.0, max_delay=2.0, jitter=0.5)
"""For a run that has begun: its state is lost if it is not written."""
_LONG = 9.0
"""Seconds. Where the store itself took that long to fail, who waits has waited for long enough."""


async def surely(
    send: Callable[[], Awaitable[T]],
    policy: RetryPolicy = PATIENCE,
    failed: Callable[[StoreUnavailable], None] | None = None,
) -> T:
    """``StoreUnavailable`` only when ``policy`` is at its end. ``failed`` hears of each failure."""
    failures, time = 0, asyncio.get_running_loop().time
    give_up_at = inf if policy is ENDLESS else time() + _LONG
    while True:
        try:
            return await send()
        except StoreUnavailable as error:
            failures += 1
            if failed is not None:
                failed(error)
            if time() >= give_up_at:
                raise
            await bear(error, failures, policy)


async def bear(error: StoreUnavailable, failures: int, policy: RetryPolicy) -> None:
    """Wait until it is time for the next try; ``error`` once more if there is to be none."""
    wait = policy.wait_after(failures, luck=random.random())  # noqa: S311
    if wait is None:
        raise error
    await pause(wait)
