"""Helpers for asyncio: ending tasks reliably, waiting with a time-out, retrying calls of a store,
and the run id of the current task for logs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextvars import ContextVar
from itertools import cycle
from math import inf
from typing import Any, TypeVar

from tenure.model.errors import StoreUnavailable
from tenure.model.retry_policy import RetryPolicy

_CANCEL_INTERVALS_S = (0.1, 0.005)
"""Between repeated cancellations, in turns. If every call in a loop swallows one cancellation, a
steady interval may meet a new call each time; two in quick succession reach the loop itself."""
_ending_tasks: set[asyncio.Task[None]] = set()
"""Keeps the tasks referenced; the event loop does not."""


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks until all of them have ended; their results and errors are ignored. If cancelled
    itself, it stops waiting.

    One cancellation may be lost: a client whose answer arrives at that moment may swallow it, a
    database driver may raise an error of its own instead, and a loop that survives errors then
    continues. So the cancellation is repeated.
    """
    left: Collection[asyncio.Task[Any]] = [task for task in tasks if not task.done()]
    intervals = cycle(_CANCEL_INTERVALS_S)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=next(intervals))


async def cancel_and_wait(*tasks: asyncio.Task[Any]) -> None:
    """As ``end``, and continues with it in the background if the caller is cancelled."""
    ending = asyncio.ensure_future(end(*tasks))
    _ending_tasks.add(ending)
    ending.add_done_callback(_ending_tasks.discard)
    await asyncio.shield(ending)


async def finished_within(seconds: float, work: Coroutine[Any, Any, object]) -> bool:
    """Whether ``work`` finished within ``seconds``; else it is cancelled, and its error ignored.
    Raises what ``work`` raises in time."""
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
    """How often the current task was cancelled (not the task it awaits)."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


T = TypeVar("T")


async def wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    """Whether ``event`` was set within ``seconds``."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def pause(seconds: float) -> None:
    """Sleep, by the event loop's clock."""
    await wait_for_event(asyncio.Event(), seconds)


async def run_with_graceful_cancel(
    work: Coroutine[Any, Any, T], ask_to_end: Callable[[], None]
) -> T:
    """The result of ``work``, which survives one cancellation of the caller.

    The first cancellation calls ``ask_to_end`` and raises ``CancelledError`` when the work has
    ended. The second cancels the work and waits for its end. The third does not wait.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    task = loop.create_task(_notify(work, ended))
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
            task.exception()  # retrieved, or asyncio logs it; the cancellation is raised
        raise
    return task.result()


async def _notify(work: Coroutine[Any, Any, T], ended: asyncio.Future[None]) -> T:
    """Awaiting a future is cheaper than awaiting a task, and cancelling it does not cancel work."""
    try:
        return await work
    finally:
        if not ended.done():
            ended.set_result(None)


PATIENCE = RetryPolicy(attempts=6, delay=0.05, backoff=3.0, max_delay=2.0, jitter=0.5)
"""For calls with a waiting caller: a few seconds, then the error is raised."""
ENDLESS = RetryPolicy(attempts=2**62, delay=0.05, backoff=2.0, max_delay=2.0, jitter=0.5)
"""For a run that has begun, whose state must not be lost."""
_MAX_WAIT_S = 9.0
"""No retry after this time, if the store's own failures took that long."""


async def until_answered(
    send: Callable[[], Awaitable[T]],
    policy: RetryPolicy = PATIENCE,
    failed: Callable[[StoreUnavailable], None] | None = None,
) -> T:
    """Call ``send`` until the store answers; raises ``StoreUnavailable`` when ``policy`` gives up.
    ``failed`` is called with each failure.

    After ``StoreUnavailable`` it is unknown whether a write was applied. It is sent again
    unchanged: the store recognises it and gives the same answer.
    """
    failures, time = 0, asyncio.get_running_loop().time
    give_up_at = inf if policy is ENDLESS else time() + _MAX_WAIT_S
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
    """Wait until the next try is due; raises ``error`` if there is none."""
    wait = policy.wait_after(failures, luck=random.random())  # noqa: S311
    if wait is None:
        raise error
    await pause(wait)


_run_id: ContextVar[str | None] = ContextVar("tenure_run_id", default=None)


class about:
    """Sets the run id shown in logs, also for tasks created meanwhile."""

    __slots__ = ("_before", "_run_id")

    def __init__(self, run_id: str | None) -> None:
        self._run_id = run_id

    def __enter__(self) -> None:
        self._before = _run_id.set(self._run_id)

    def __exit__(self, *_: object) -> None:
        _run_id.reset(self._before)


def run_at_hand() -> str | None:
    """The run id set by ``about``, for logs."""
    return _run_id.get()
