"""Callbacks without an outbox: in memory, in order, by the same policy, for as long as we live.

For a store that has no outbox, and for the application's own notifier, which no other process could
call. Each run and target has a line of its own: one that waits for its next attempt holds back
those behind it and nobody else. What is given up, and what is left when the process ends, is told
to ``gave_up``, so that it can be recorded.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from weakref import WeakValueDictionary

from msgspec.structs import replace

from tenure.model.outbox import Delivery, GiveUp, Outcome, RetryLater, origin_of
from tenure.model.retry import RetryPolicy
from tenure.ports.sender import CallbackSender
from tenure.runtime.given_up import note_given_up
from tenure.runtime.sending import attempt, outcome_of
from tenure.runtime.waiting import pause

_log = logging.getLogger("tenure.runtime")

GaveUp = Callable[[Delivery], Awaitable[None]]
"""Hears of a delivery with its last error and the number of its attempts. May fail."""

_Key = tuple[str, str]
"""Run and target."""

_A_MOMENT = 1.0
"""Seconds for what takes none if all is well."""


class _Line:
    """What one run owes one target, the next one first."""

    __slots__ = ("_moved", "queue", "recording")

    def __init__(self) -> None:
        self.queue: deque[Delivery] = deque()
        self.recording = False
        """Whether the first was given up, and somebody is being told."""
        self._moved = asyncio.Event()

    @property
    def untried(self) -> bool:
        """Whether the first, and with it those behind, can still hope for its first attempt."""
        return bool(self.queue) and (self.queue[0].attempts == 0 or self.recording)

    def has_moved(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    async def moves(self) -> None:
        await self._moved.wait()


class BestEffort:
    """``seconds`` for an attempt, ``per_origin`` attempts at once to one receiver.

    ``most_waiting`` of one run and target are kept, and ``most_in_all``: further ones are given up
    at once.
    """

    def __init__(
        self,
        policy: RetryPolicy,
        gave_up: GaveUp,
        *,
        seconds: float = 15.0,
        per_origin: int = 10,
        most_waiting: int = 1000,
        most_in_all: int = 100_000,
    ) -> None:
        self._policy = policy
        self._gave_up = gave_up
        self._seconds = seconds
        self._per_origin = per_origin
        self._most_waiting = most_waiting
        self._most_in_all = most_in_all
        self._kept = 0
        self._lines: dict[_Key, _Line] = {}
        self._places: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """By origin, for as long as anybody sends there."""
        self._tasks: set[asyncio.Task[None]] = set()

    def owe(self, delivery: Delivery, sender: CallbackSender) -> None:
        """Those of one run and target in the order in which they are to arrive, and by one
        sender."""
        key = (delivery.run_id, delivery.target.name)
        line = self._lines.get(key)
        too_many = self._too_many(line)
        if too_many is not None:
            self._begin(self._give_up(delivery, too_many))
            return
        self._kept += 1
        if line is not None:
            line.queue.append(delivery)
            return
        line = self._lines[key] = _Line()
        line.queue.append(delivery)
        self._begin(self._carry(key, line, sender))

    async def flush(self, seconds: float, of: _Key | None = None) -> bool:
        """Wait until each was tried once or stands behind one that failed, ``seconds`` at most.
        ``of`` one run and target only."""
        line = self._untried(of)
        if line is None:
            return True
        try:
            async with asyncio.timeout(seconds):
                while line is not None:
                    await line.moves()
                    line = self._untried(of)
        except TimeoutError:
            return False
        return True

    async def close(self, seconds: float) -> None:
        """``seconds`` for what was never tried, and a moment to record what is then lost."""
        try:
            await self.flush(seconds)
        finally:
            await self._stop()
            await self._record_lost()

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_A_MOMENT)  # one may not listen

    async def _record_lost(self) -> None:
        lost = [line.queue for line in self._lines.values() if line.queue]
        self._lines = {}
        if not lost:
            return
        _log.warning(
            "%d callbacks are lost: this process ends, and they were in its memory only",
            sum(map(len, lost)),
        )
        words = [asyncio.create_task(self._give_up(*_last_word(queue))) for queue in lost]
        try:
            await asyncio.wait(words, timeout=_A_MOMENT)
        finally:
            for word in words:
                word.cancel()

    def _too_many(self, line: _Line | None) -> str | None:
        if line is not None and len(line.queue) >= self._most_waiting:
            return f"{len(line.queue)} callbacks of this run wait for their target already"
        if self._kept >= self._most_in_all:
            return f"{self._kept} callbacks wait in memory already"
        return None

    def _untried(self, of: _Key | None) -> _Line | None:
        lines = self._lines
        if of is not None:
            line = lines.get(of)
            return line if line is not None and line.untried else None
        return next((line for line in lines.values() if line.untried), None)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, key: _Key, line: _Line, sender: CallbackSender) -> None:
        places = self._places_for(origin_of(line.queue[0].target))
        while line.queue:
            async with places:
                outcome = await self._try(line.queue[0], sender)
            await self._settle(line, outcome)
            line.has_moved()
            if isinstance(outcome, RetryLater):
                await pause(outcome.delay)
        self._lines.pop(key, None)

    async def _try(self, delivery: Delivery, sender: CallbackSender) -> Outcome:
        end_by = asyncio.get_running_loop().time() + self._seconds
        answer = await attempt(sender, delivery, end_by)
        luck = random.random()  # noqa: S311
        return outcome_of(answer, delivery, self._policy, luck)

    async def _settle(self, line: _Line, outcome: Outcome) -> None:
        tried = replace(line.queue[0], attempts=line.queue[0].attempts + 1)
        match outcome:
            case RetryLater(_, error):
                line.queue[0] = replace(tried, last_error=error)
                return
            case GiveUp(error):
                line.recording = True
                await self._give_up(tried, error)
                line.recording = False
        line.queue.popleft()
        self._kept -= 1

    def _places_for(self, origin: str) -> asyncio.Semaphore:
        places = self._places.get(origin)
        if places is None:
            places = self._places[origin] = asyncio.Semaphore(self._per_origin)
        return places

    async def _give_up(self, delivery: Delivery, error: str) -> None:
        note_given_up(delivery, error)
        try:
            await self._gave_up(replace(delivery, last_error=error))
        except Exception:  # noqa: BLE001  the log has it; the next callback must go out
            _log.exception("cannot record that callback %s was given up", delivery.id)


def _last_word(queue: deque[Delivery]) -> tuple[Delivery, str]:
    """One for all: it says how many it speaks for."""
    first = queue[0]
    words = "the process ended before it was delivered"
    if len(queue) > 1:
        words = f"{words}, with {len(queue) - 1} more behind it"
    return first, f"{first.last_error}; {words}" if first.last_error else words
