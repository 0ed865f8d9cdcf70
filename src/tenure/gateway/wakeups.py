"""One ear for many who wait: hints of the store, kept from one question of a client to its next.

A client that waits asks again and again. What happens between two of its questions must not be
missed, so whoever once asked for some topics is listened for a while longer, and each hint is
counted: the client says up to which one it was told.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from tenure.aio import wait_for_event
from tenure.gateway.problems import BUSY, Refusal
from tenure.ports.leases import Wakeups
from tenure.ports.store import RunStateStore
from tenure.system import new_update_id

_IDLE = 60.0
"""Seconds that somebody is listened for who does not ask any more."""
_MOST = 5_000
"""Different sets of topics at once, for one token: each worker that has it waits for its own."""

Topics = tuple[str, ...]


class WakeupHub:
    """``closing``: whoever waits is answered then, and nobody is listened for any more."""

    def __init__(self, store: RunStateStore, closing: asyncio.Event) -> None:
        self._store = store if isinstance(store, Wakeups) else None
        self._closing = closing
        self._ears: dict[str, dict[Topics, _Subscription]] = defaultdict(dict)
        """By token, so that nobody takes the room of others."""

    @property
    def hears(self) -> bool:
        """Whether this store wakes anybody."""
        return self._store is not None

    async def news(
        self, whose: str, topics: Sequence[str], after: str | None, seconds: float
    ) -> str:
        """Where we are: another place than ``after`` if there may be news, which is waited for up
        to ``seconds``. Who comes from elsewhere, or for the first time, is told so at once: what
        was before may have been missed. ``Refusal`` if ``whose`` token waits for too much."""
        ear = self._ear_for(whose, tuple(sorted(set(topics))))
        with ear:
            if ear.position == after or not ear.began:
                await wait_for_event(ear.rings, seconds)
            return ear.position

    async def close(self) -> None:
        """Once ``closing`` is set."""
        tasks = [ear.task for ears in self._ears.values() for ear in ears.values()]
        if tasks:
            await asyncio.wait(tasks)

    def _ear_for(self, whose: str, topics: Topics) -> _Subscription:
        ears = self._ears[whose]
        ear = ears.get(topics)
        if ear is None:
            if self._store is None or len(ears) >= _MOST:
                raise Refusal(BUSY, "this token waits for too many different things")
            ear = ears[topics] = _Subscription()
            ear.task = asyncio.create_task(self._listen(self._store, ears, topics, ear))
        return ear

    async def _listen(
        self, store: Wakeups, ears: dict[Topics, _Subscription], topics: Topics, ear: _Subscription
    ) -> None:
        try:
            async with store.listen(topics, ear.ring):
                while ear.is_wanted:
                    if await wait_for_event(self._closing, _IDLE / 2):
                        return
        finally:
            del ears[topics]
            ear.ring()


class _Subscription:
    """Entered by whoever waits."""

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self._name = new_update_id()
        self._count = 0
        self._waiting = 0
        self._asked_at = self._now()
        self.rings = asyncio.Event()
        """The next hint sets it."""

    def ring(self) -> None:
        self._count += 1
        rung, self.rings = self.rings, asyncio.Event()
        rung.set()

    @property
    def position(self) -> str:
        return f"{self._name}.{self._count}"

    @property
    def began(self) -> bool:
        """The first hint says that listening has begun."""
        return self._count > 0

    @property
    def is_wanted(self) -> bool:
        return self._waiting > 0 or self._now() - self._asked_at < _IDLE

    def __enter__(self) -> None:
        self._waiting += 1

    def __exit__(self, *exit_details: object) -> None:
        self._waiting -= 1
        self._asked_at = self._now()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
