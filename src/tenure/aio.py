"""Ending asyncio tasks, surely.

To cancel a task once is to ask it once. A client whose answer came in that very moment forgets the
question; a database driver that is stopped in mid-call may raise an error of its own instead; and a
loop that bears errors, since it has to go on whatever happens, then goes round again and is never
asked any more. So whoever ends such a task asks until it has ended.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextvars import ContextVar
from itertools import cycle
from math import inf
from typing import Any, TypeVar

from tenure.model.errors import StoreUnavailable
from tenure.model.retry import RetryPolicy

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


async def cancel_and_wait(*tasks: asyncio.Task[Any]) -> None:
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


# Waiting that ends early when something happens.


T = TypeVar("T")


async def wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    """Whether ``event`` was set before ``seconds`` were over."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def pause(seconds: float) -> None:
    """Let time pass, by the event loop's clock."""
    await wait_for_event(asyncio.Event(), seconds)


async def run_with_graceful_cancel(
    work: Coroutine[Any, Any, T], ask_to_end: Callable[[], None]
) -> T:
    """The result of ``work``, which outlives one cancellation of who waits for it.

    The first only asks it to end; when it has, ``CancelledError`` comes out. The second cancels
    the work itself, and is over when that has ended. The third waits for nothing.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    task = loop.create_task(_telling(work, ended))
    try:
        await ended
    except asyncio.CancelledError:
        ask_to_end()
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # the cancellation is what comes out; nobody else will ask for it
        raise
    return task.result()


async def _telling(work: Coroutine[Any, Any, T], ended: asyncio.Future[None]) -> T:
    """A future of its own is cheaper to wait for than a task, and cancelling it cancels nothing."""
    try:
        return await work
    finally:
        if not ended.done():
            ended.set_result(None)


# Sending again what may not have arrived.
#
# After ``StoreUnavailable`` nobody knows whether a write happened. It is sent again as it was: the
# store recognises what it has seen, and answers as it did the first time.


PATIENCE = RetryPolicy(attempts=6, delay=0.05, backoff=3.0, max_delay=2.0, jitter=0.5)
"""For what somebody waits for: a few seconds, then the error is theirs."""
ENDLESS = RetryPolicy(attempts=2**62, delay=0.05, backoff=2.0, max_delay=2.0, jitter=0.5)
"""For a run that has begun: its state is lost if it is not written."""
_LONG = 9.0
"""Seconds. Where the store itself took that long to fail, who waits has waited for long enough."""


async def until_answered(
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


# Which run the work at hand is about, for whoever writes a log of it.


_run_id: ContextVar[str | None] = ContextVar("tenure_run_id", default=None)


class about:
    """Also for the tasks that begin meanwhile."""

    __slots__ = ("_before", "_run_id")

    def __init__(self, run_id: str | None) -> None:
        self._run_id = run_id

    def __enter__(self) -> None:
        self._before = _run_id.set(self._run_id)

    def __exit__(self, *_: object) -> None:
        _run_id.reset(self._before)


def run_at_hand() -> str | None:
    return _run_id.get()
