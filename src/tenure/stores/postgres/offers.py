"""Runs that come to an idle worker with their announcement.

Who has looked and found nothing waits for hints. If then one hint comes, and a record with it,
there is no need to look: as far as anybody knows this run waits alone. That it still does is found
out by whoever begins it. Of more than one hint, of one without a record, or after hints may have
been missed, nothing is concluded: the store is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from tenure.model.query import topic_of_queue

_FRESH = 1.0
"""Seconds after which somebody else has surely begun it."""


class _Offer(NamedTuple):
    record: bytes | None
    heard_at: float


class Offers:
    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._empty: set[str] = set()
        """Topics of queues in which nothing waited when somebody last looked."""
        self._heard: dict[str, list[_Offer]] = {}
        """By topic, since then."""

    def hear(self, topics: Collection[str], record: bytes | None = None) -> None:
        offer = _Offer(record, self._time())
        for topic in self._empty.intersection(topics):
            offers = self._heard.setdefault(topic, [])
            if len(offers) < 2:  # more mean no more than two
                offers.append(offer)

    def may_have_missed_some(self) -> None:
        self._empty.clear()
        self._heard.clear()

    def only_one(self, queues: Collection[str]) -> bytes | None:
        """The record of the run that waits, if it is known that there is one and no other. It is
        offered once."""
        topics = {topic_of_queue(queue) for queue in queues}
        offers = [offer for topic in topics for offer in self._heard.pop(topic, ())]
        if len(offers) != 1 or not topics <= self._empty:
            return None
        ((record, heard_at),) = offers
        return record if self._time() - heard_at <= _FRESH else None

    def look(self, queues: Collection[str]) -> None:
        """Somebody is about to: from here on he will have seen what is announced, or hear of it."""
        topics = {topic_of_queue(queue) for queue in queues}
        self._empty |= topics
        for topic in topics:
            self._heard.pop(topic, None)

    def found_more(self, queues: Collection[str]) -> None:
        """Than who looked will begin now."""
        self._empty -= {topic_of_queue(queue) for queue in queues}
