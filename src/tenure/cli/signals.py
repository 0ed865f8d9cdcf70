"""Ctrl-C: once to cancel cleanly, twice to stop at once, three times to wait for nothing.

What is stopped at once may wait for others all the same: for a store that does not answer, for a
thread of a driver. So the second signal also sets a time by which the process has ended, whatever
becomes of the work; its supervisor then kills what is left of its tasks.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from tenure.model.errors import TenureError

T = TypeVar("T")
Ask = Callable[[signal.Signals], Awaitable[bool]]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN = 0.1
_SAME = 0.5
"""Seconds within which a repetition is the same request: `timeout` and service managers signal a
process and then its group."""
_FOR_GOOD = 2
"""The first cancel asks a run to end, the second ends it; a third would leave tasks behind."""
_NO_LONGER = 1.5
"""Seconds from the second signal to the end of the process."""
_HARD_STOP = 128 + signal.SIGINT


class Stopped(Exception):
    """Work was ended by signals before it could come to an end of its own."""


class LastWords:
    """What is said of work that was stopped, by whoever comes to say it first; and the exit code
    of the process."""

    def __init__(self, say: Callable[[], int]) -> None:
        self._say = say
        self._guard = threading.Lock()
        self._code: int | None = None

    def __call__(self) -> int:
        with self._guard:
            if self._code is None:
                self._code = self._say()
            return self._code


async def stoppable(
    work: Coroutine[Any, Any, T], ask: Ask | None = None, last_words: LastWords | None = None
) -> T:
    """The result of ``work``, however many signals came, or ``Stopped``.

    The first signal goes to ``ask``, which says whether somebody will end the work; otherwise the
    work itself is cancelled. The second cancels it for good: no grace is left. If the process has
    not ended soon after, it is ended with ``last_words``, or without.
    """
    running = asyncio.ensure_future(work)
    ears = _Ears(running, ask, last_words or LastWords(lambda: _HARD_STOP))
    loop = asyncio.get_running_loop()
    # A parent that wants a signal ignored (nohup) gets its wish.
    taken = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    for each in taken:
        loop.add_signal_handler(each, ears.hear, each)
    try:
        result = await running
    except asyncio.CancelledError:
        raise Stopped from None
    else:
        ears.ended()
        return result
    finally:
        for each in taken:
            loop.remove_signal_handler(each)


class _Ears:
    def __init__(self, running: asyncio.Task[T], ask: Ask | None, last_words: LastWords) -> None:
        self._running = running
        self._ask = ask
        # A thread of its own: the event loop may be closing by then, the interpreter waiting for
        # the threads of others.
        self._deadline = threading.Timer(_NO_LONGER, _end_now, [last_words])
        self._deadline.daemon = True
        self._heard = 0
        self._heard_at = 0.0
        self._cancels = 0
        self._acting: list[asyncio.Task[None]] = []

    def hear(self, each: signal.Signals) -> None:
        now = asyncio.get_running_loop().time()
        if self._heard == 1 and each is not signal.SIGINT and now - self._heard_at < _SAME:
            return
        self._heard += 1
        self._heard_at = now
        if self._heard == 1:
            self._acting.append(asyncio.create_task(self._cleanly(each)))
        elif self._heard == 2:
            self._deadline.start()
            self._acting.append(asyncio.create_task(self._at_once()))
        else:
            os._exit(_HARD_STOP)

    def ended(self) -> None:
        """In spite of all, the work has come to an end of its own: what follows may take its
        time."""
        self._deadline.cancel()

    async def _cleanly(self, each: signal.Signals) -> None:
        try:
            asked = self._ask is not None and await self._ask(each)
        except TenureError:
            asked = False
        if not asked:
            self._cancel()

    async def _at_once(self) -> None:
        while self._cancels < _FOR_GOOD and not self._running.done():
            self._cancel()
            await asyncio.wait([self._running], timeout=_AGAIN)

    def _cancel(self) -> None:
        self._cancels += 1
        self._running.cancel()


def _end_now(last_words: LastWords) -> None:
    code = _HARD_STOP
    try:
        code = last_words()
    finally:
        os._exit(code)
