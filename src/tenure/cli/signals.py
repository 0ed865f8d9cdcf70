"""Ctrl-C: once cancels cleanly, twice stops at once, three times exits without waiting.

Even work that is stopped at once may have to wait: for a store that does not answer, or a driver's
thread. So the second signal also sets a deadline for the end of the process; its supervisor then
kills what is left of its tasks.
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
_CANCEL_INTERVAL_S = 0.1
_REPEAT_WINDOW_S = 0.5
"""Seconds within which a repetition is the same request: `timeout` and service managers signal a
process and then its group."""
_MAX_CANCELS = 2
"""The first cancel asks a run to end, the second ends it; a third would leave tasks behind."""
_EXIT_TIMEOUT_S = 1.5
"""Seconds from the second signal to the end of the process."""
_HARD_STOP = 128 + signal.SIGINT


class Stopped(Exception):
    """Work was ended by signals before it finished by itself."""


class LastWords:
    """The final message and exit code of stopped work; printed once, whichever thread gets there
    first."""

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

    The first signal is passed to ``ask``, which returns whether the work will be ended; otherwise
    the work itself is cancelled. The second cancels it without grace. If the process has not ended
    soon after, it exits with ``last_words``, if given.
    """
    running = asyncio.ensure_future(work)
    ears = _SignalHandler(running, ask, last_words or LastWords(lambda: _HARD_STOP))
    loop = asyncio.get_running_loop()
    # A signal that the parent wants ignored (nohup) stays ignored.
    taken = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    for each in taken:
        loop.add_signal_handler(each, ears.handle, each)
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


class _SignalHandler:
    def __init__(self, running: asyncio.Task[T], ask: Ask | None, last_words: LastWords) -> None:
        self._running = running
        self._ask = ask
        # A thread of its own: the event loop may be closing by then, or the interpreter waiting for
        # other threads.
        self._deadline = threading.Timer(_EXIT_TIMEOUT_S, _end_now, [last_words])
        self._deadline.daemon = True
        self._signals = 0
        self._first_at = 0.0
        self._cancels = 0
        self._acting: list[asyncio.Task[None]] = []

    def handle(self, each: signal.Signals) -> None:
        now = asyncio.get_running_loop().time()
        if (
            self._signals == 1
            and each is not signal.SIGINT
            and now - self._first_at < _REPEAT_WINDOW_S
        ):
            return
        self._signals += 1
        self._first_at = now
        if self._signals == 1:
            self._acting.append(asyncio.create_task(self._cancel_cleanly(each)))
        elif self._signals == 2:
            self._deadline.start()
            self._acting.append(asyncio.create_task(self._stop_at_once()))
        else:
            os._exit(_HARD_STOP)

    def ended(self) -> None:
        """The work has finished after all: clear the deadline."""
        self._deadline.cancel()

    async def _cancel_cleanly(self, each: signal.Signals) -> None:
        try:
            asked = self._ask is not None and await self._ask(each)
        except TenureError:
            asked = False
        if not asked:
            self._cancel()

    async def _stop_at_once(self) -> None:
        while self._cancels < _MAX_CANCELS and not self._running.done():
            self._cancel()
            await asyncio.wait([self._running], timeout=_CANCEL_INTERVAL_S)

    def _cancel(self) -> None:
        self._cancels += 1
        self._running.cancel()


def _end_now(last_words: LastWords) -> None:
    code = _HARD_STOP
    try:
        code = last_words()
    finally:
        os._exit(code)
