"""Waiting that ends early when something happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def happens_within(event: asyncio.Event, seconds: float) -> bool:
    """Whether ``event`` was set before ``seconds`` were over."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def pause(seconds: float) -> None:
    """Let time pass, by the event loop's clock."""
    await happens_within(asyncio.Event(), seconds)


async def to_a_good_end(work: Coroutine[Any, Any, T], ask_to_end: Callable[[], None]) -> T:
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
