"""Callbacks without an outbox: in memory, in order, by the same policy, for as long as we live.

For a store that has no outbox, and for the application's own notifier, which no other process could
call. Each run and target has a queue of its own: one that waits for its next attempt holds back
those behind it and nobody else. What the process does not get rid of before it ends is gone; what
it gives up is told to ``gave_up``, so that it can be recorded.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from tenure.model.outbox import Delivery, GiveUp, RetryLater, origin_of
from tenure.model.retry import RetryPolicy
from tenure.ports.notifier import RunStateNotifier
from tenure.ports.sender import CallbackSender, NotTaken
from tenure.runtime.sending import attempt, outcome_of
from tenure.runtime.waiting import pause
from tenure.wire.callback import payload

_log = logging.getLogger("tenure.runtime")

GaveUp = Callable[[Delivery], Awaitable[None]]
"""Hears of a delivery with its last error and the number of its attempts. May fail."""


class NotifierSender:
    """The application's notifier as a sender. Whatever it raises is tried again."""

    def __init__(self, notifier: RunStateNotifier) -> None:
        self._notifier = notifier

    async def send(self, delivery: Delivery) -> NotTaken | None:
        await self._notifier.notify(
            payload(delivery.event, delivery.workflow_name, delivery.run_status)
        )
        return None

    async def close(self) -> None:
        """The notifier is the application's."""


class BestEffort:
    """``seconds`` for an attempt, ``per_target`` attempts at once to one receiver.

    ``most_waiting`` of one run and target are kept: further ones are given up at once.
    """

    def __init__(
        self,
        send: CallbackSender,
        policy: RetryPolicy,
        gave_up: GaveUp,
        *,
        seconds: float = 15.0,
        per_target: int = 10,
        most_waiting: int = 1000,
    ) -> None:
        self._sender = send
        self._policy = policy
        self._gave_up = gave_up
        self._seconds = seconds
        self._most_waiting = most_waiting
        self._places: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(per_target)
        )
        self._queues: dict[tuple[str, str], deque[Delivery]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._progress = asyncio.Event()

    def owe(self, delivery: Delivery) -> None:
        """Those of one run and target in the order in which they are to arrive."""
        key = (delivery.run_id, delivery.target.name)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque()
            queue.append(delivery)
            self._begin(self._carry(key, queue))
        elif len(queue) < self._most_waiting:
            queue.append(delivery)
        else:
            error = f"{len(queue)} callbacks of this run wait for their target already"
            self._begin(self._give_up(delivery, error))

    async def flush(self, seconds: float) -> bool:
        """Wait until each was tried once or stands behind one that failed, ``seconds`` at most."""
        try:
            async with asyncio.timeout(seconds):
                while any(queue[0].attempts == 0 for queue in self._queues.values()):
                    progress = self._progress
                    await progress.wait()
        except TimeoutError:
            return False
        return True

    async def close(self, seconds: float) -> None:
        await self.flush(seconds)
        left = sum(map(len, self._queues.values()))
        if left:
            _log.warning("%d callbacks are lost: they were in memory only", left)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, key: tuple[str, str], queue: deque[Delivery]) -> None:
        while queue:
            wait = await self._try(queue)
            self._note_progress()
            if wait:
                await pause(wait)
        del self._queues[key]

    async def _try(self, queue: deque[Delivery]) -> float:
        """One attempt for the first of them; how long to wait for the next."""
        delivery = queue[0]
        async with self._places[origin_of(delivery.target)]:
            end_by = asyncio.get_running_loop().time() + self._seconds
            answer = await attempt(self._sender, delivery, end_by)
        tried = replace(delivery, attempts=delivery.attempts + 1)
        luck = random.random()  # noqa: S311
        outcome = outcome_of(answer, delivery, self._policy, luck)
        if isinstance(outcome, RetryLater):
            queue[0] = replace(tried, last_error=outcome.error)
            return outcome.delay
        if isinstance(outcome, GiveUp):
            await self._give_up(tried, outcome.error)
        queue.popleft()
        return 0.0

    async def _give_up(self, delivery: Delivery, error: str) -> None:
        _log.warning(
            "callback %s of run %s to %s is given up after %d attempts: %s",
            delivery.event.type,
            delivery.run_id,
            origin_of(delivery.target),
            delivery.attempts,
            error,
        )
        try:
            await self._gave_up(replace(delivery, last_error=error))
        except Exception:  # noqa: BLE001  the log has it; the next callback must go out
            _log.exception("cannot record that callback %s was given up", delivery.id)

    def _note_progress(self) -> None:
        self._progress.set()
        self._progress = asyncio.Event()
