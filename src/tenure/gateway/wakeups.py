"""Subscriptions to the store's wake-ups, kept between the requests of a client.

A waiting client sends request after request. Hints that arrive between two of them must not be
missed, so a subscription outlives its request for a while and counts its hints: the client sends
the last count it has seen.
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

_IDLE_TIMEOUT_S = 60.0
"""How long an idle subscription is kept."""
_MAX_SUBSCRIPTIONS_PER_TOKEN = 5_000
"""Each worker with the same token has a subscription of its own."""

Topics = tuple[str, ...]


class WakeupHub:
    """All subscriptions of a gateway. ``closing`` answers every waiting client and ends them."""

    def __init__(self, store: RunStateStore, closing: asyncio.Event) -> None:
        self._store = store if isinstance(store, Wakeups) else None
        self._closing = closing
        self._subscriptions: dict[str, dict[Topics, _Subscription]] = defaultdict(dict)
        """By token, so that one token cannot use up the places of others."""

    @property
    def hears(self) -> bool:
        """Whether this store has wake-ups."""
        return self._store is not None

    async def news(
        self, whose: str, topics: Sequence[str], after: str | None, seconds: float
    ) -> str:
        """The present position; waits up to ``seconds`` while it equals ``after``. An unknown
        ``after`` (of another gateway, or none) is answered at once, since hints may have been
        missed. ``Refusal`` if the token ``whose`` has too many subscriptions."""
        subscription = self._subscription_for(whose, tuple(sorted(set(topics))))
        with subscription:
            if subscription.position == after or not subscription.began:
                await wait_for_event(subscription.next_hint, seconds)
            return subscription.position

    async def close(self) -> None:
        """Wait for the end of all subscriptions; ``closing`` is set before."""
        tasks = [
            subscription.task
            for subscriptions in self._subscriptions.values()
            for subscription in subscriptions.values()
        ]
        if tasks:
            await asyncio.wait(tasks)

    def _subscription_for(self, whose: str, topics: Topics) -> _Subscription:
        subscriptions = self._subscriptions[whose]
        subscription = subscriptions.get(topics)
        if subscription is None:
            if self._store is None or len(subscriptions) >= _MAX_SUBSCRIPTIONS_PER_TOKEN:
                raise Refusal(BUSY, "this token has too many subscriptions")
            subscription = subscriptions[topics] = _Subscription()
            subscription.task = asyncio.create_task(
                self._listen(self._store, subscriptions, topics, subscription)
            )
        return subscription

    async def _listen(
        self,
        store: Wakeups,
        subscriptions: dict[Topics, _Subscription],
        topics: Topics,
        subscription: _Subscription,
    ) -> None:
        try:
            async with store.listen(topics, subscription.hear):
                while subscription.is_wanted:
                    if await wait_for_event(self._closing, _IDLE_TIMEOUT_S / 2):
                        return
        finally:
            del subscriptions[topics]
            subscription.hear()


class _Subscription:
    """One set of topics; entered by each waiting request."""

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self._name = new_update_id()
        self._count = 0
        self._waiting = 0
        self._asked_at = self._now()
        self.next_hint = asyncio.Event()
        """Set by the next hint."""

    def hear(self) -> None:
        self._count += 1
        hint, self.next_hint = self.next_hint, asyncio.Event()
        hint.set()

    @property
    def position(self) -> str:
        return f"{self._name}.{self._count}"

    @property
    def began(self) -> bool:
        """Whether the first hint has come, which says that listening has begun."""
        return self._count > 0

    @property
    def is_wanted(self) -> bool:
        return self._waiting > 0 or self._now() - self._asked_at < _IDLE_TIMEOUT_S

    def __enter__(self) -> None:
        self._waiting += 1

    def __exit__(self, *exit_details: object) -> None:
        self._waiting -= 1
        self._asked_at = self._now()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
