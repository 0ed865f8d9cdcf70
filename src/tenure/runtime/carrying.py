"""Attempts under way.

Each is made by a task that goes on with the next one when it has ended: a task for each attempt,
and a timer, would cost as much as all the rest we do for it. One alarm watches over all of them,
set to the soonest moment at which one of them must have ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from typing import NamedTuple

from tenure.ports.sender import CallbackSender, NotTaken
from tenure.runtime.lanes import Held
from tenure.runtime.sending import NO_ANSWER, ask


class Interruption(Enum):
    """An attempt that we ended ourselves."""

    STOPPED = "the target may have got it"
    NOT_BEGUN = "nothing was sent"


Ending = NotTaken | Interruption | None
"""``None``: the target has it."""


class _Attempt(NamedTuple):
    held: Held
    task: asyncio.Task[None]


class Carrying:
    """``following`` says what may go out now; ``ended`` hears of each attempt, before that is asked
    again."""

    def __init__(
        self,
        sender: CallbackSender,
        following: Callable[[], list[Held]],
        ended: Callable[[Held, Ending], None],
    ) -> None:
        self._sender = sender
        self._following = following
        self._ended = ended
        self._under_way: dict[str, _Attempt] = {}
        """By the delivery's id."""
        self._alarm: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[Held]:
        return (attempt.held for attempt in self._under_way.values())

    def begin(self) -> None:
        for held in self._following():
            self._start(held)

    def renew(self, held: Held) -> bool:
        """Whether it is under way already. So it is if the machine slept, and our clock with it,
        but not the store's: the attempt goes on under the new claim."""
        attempt = self._under_way.get(held.delivery.id)
        if attempt is None:
            return False
        self._under_way[held.delivery.id] = attempt._replace(held=held)
        return True

    def stop(self) -> None:
        """End all of them now."""
        for attempt in self._under_way.values():
            attempt.task.cancel()
        if self._alarm is not None:
            self._alarm.cancel()

    def _start(self, held: Held) -> None:
        task = asyncio.create_task(self._carry(held))
        self._note(held, task)
        task.add_done_callback(partial(self._gone, held))

    async def _carry(self, held: Held) -> None:
        while True:
            try:
                answer = await ask(self._sender, held.delivery)
            except asyncio.CancelledError:
                late = held.end_by <= asyncio.get_running_loop().time()
                self._end(held, NO_ANSWER if late else Interruption.STOPPED)
                if late:
                    self.begin()
                return
            task = self._under_way[held.delivery.id].task
            self._end(held, answer)
            following = self._following()
            if not following:
                return
            held, *others = following
            self._note(held, task)
            for other in others:
                self._start(other)

    def _note(self, held: Held, task: asyncio.Task[None]) -> None:
        self._under_way[held.delivery.id] = _Attempt(held, task)
        if self._alarm is None or held.end_by < self._alarm.when():
            self._set_alarm(held.end_by)

    def _end(self, held: Held, ending: Ending) -> None:
        """With the claim that it was made under last."""
        self._ended(self._under_way.pop(held.delivery.id).held, ending)

    def _gone(self, held: Held, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # before it could begin
            self._end(held, Interruption.NOT_BEGUN)

    def _set_alarm(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_at(at, self._cut_off)

    def _cut_off(self) -> None:
        """End what must have ended by now, and be back for the next."""
        now, self._alarm = asyncio.get_running_loop().time(), None
        for attempt in self._under_way.values():
            if attempt.held.end_by <= now:
                attempt.task.cancel()
        left = [held.end_by for held in self if held.end_by > now]
        if left:
            self._set_alarm(min(left))
