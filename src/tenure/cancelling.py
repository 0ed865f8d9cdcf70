"""Ending asyncio tasks, surely.

To cancel a task once is to ask it once. A client whose answer came in that very moment forgets the
question; a database driver that is stopped in mid-call may raise an error of its own instead; and a
loop that bears errors, since it has to go on whatever happens, then goes round again and is never
asked any more. So whoever ends such a task asks until it has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from itertools import cycle
from typing import Any

_AGAIN = (0.1, 0.005)
"""Seconds for a task to do as it was told, by turns. If each call that a loop makes forgets one
cancellation, asking at a steady pace may meet a new call each time; asked twice in a row, the loop
is met between two of them."""
_under_way: set[asyncio.Task[None]] = set()
"""A loop itself remembers none of its tasks."""


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Returns when all of them have ended. What they ended with is theirs. Being cancelled ends the
    wait, not the tasks."""
    left: Collection[asyncio.Task[Any]] = [task for task in tasks if not task.done()]
    patience = cycle(_AGAIN)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=next(patience))


async def end_anyway(*tasks: asyncio.Task[Any]) -> None:
    """As ``end``, and it goes on with that if whoever waits for it is cancelled."""
    ending = asyncio.ensure_future(end(*tasks))
    _under_way.add(ending)
    ending.add_done_callback(_under_way.discard)
    await asyncio.shield(ending)


async def finished_within(seconds: float, work: Coroutine[Any, Any, object]) -> bool:
    """Whether ``work`` came to an end of its own before ``seconds`` were over; else it was ended,
    and whatever it had to say of that is not heard. What it raises in time comes out."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=seconds)
        in_time = task.done()
    finally:
        await end(task)
    if in_time:
        task.result()
    elif not task.cancelled():
        task.exception()
    return in_time


def times_cancelled() -> int:
    """Of the task that asks, and not of what it waits for."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
