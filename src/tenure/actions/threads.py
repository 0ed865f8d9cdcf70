"""Plain functions beside the event loop.

A thread of its own for each call, as a daemon: a pool would let a few stuck functions hold up all
others, and keep the program from ending.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import TypeVar

from tenure.model.errors import StillRunning

T = TypeVar("T")

_GRACE = 5.0


async def in_thread(function: Callable[[], T], name: str) -> T:
    """What ``function`` returns or raises.

    A thread cannot be ended from outside. Cancelled, this waits a moment for the function to come
    to its end; then ``StillRunning``.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        try:
            value = function()
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            failure = RuntimeError(repr(error)) if isinstance(error, StopIteration) else error
            tell(lambda: answer.set_exception(failure))
        except BaseException as error:  # noqa: BLE001 - sys.exit() ends the function, not us
            exited = RuntimeError(f"{type(error).__name__}: {error}")
            tell(lambda: answer.set_exception(exited))
        else:
            tell(lambda: answer.set_result(value))

    def tell(how: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody wants to know any more
            loop.call_soon_threadsafe(how)

    context = copy_context()
    threading.Thread(target=context.run, args=(work,), name=name, daemon=True).start()
    try:
        return await asyncio.shield(answer)
    except asyncio.CancelledError:
        await _see_it_end(answer, name)
        raise


async def _see_it_end(answer: asyncio.Future[T], name: str) -> None:
    with suppress(asyncio.CancelledError):
        await asyncio.wait({answer}, timeout=_GRACE)
    if not answer.done():
        raise StillRunning(
            f"{name} was told to end and still runs: a plain function cannot be ended from "
            "outside. Write it `async def`, or run it as a process"
        ) from None
    answer.exception()  # seen: it would be logged otherwise
