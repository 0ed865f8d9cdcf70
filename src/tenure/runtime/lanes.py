"""Whom to send to next: one lane for each receiver, so that a bad one holds up nobody else.

A lane is what this relay has claimed for one origin: some under way, the rest queued. Three rules
share the places among lanes, and none of them knows which receiver is bad:

*The window.* A lane begins with two under way, gains one with every answer and loses half with
every failure, between one and the most per origin. So one that hangs from the start never gets
more than two, and one that went bad is soon down to one.

*What is left.* A lane never has more under way than there are places left for others. So lanes
that were good until a moment ago and all hang now cannot take the last places.

*No more than can be used.* A lane that has enough queued to go on with is ``full``: nothing more is
claimed for it. If all places could be filled from the queues, nothing is claimed at all. What could
not begin in time is forgotten: its claim runs out, and somebody claims it anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from tenure.model.outbox import Delivery, origin_of

_FIRST_WINDOW = 2
_ENOUGH = 2
"""Windows. One goes out while the store is asked for the next."""
_REMEMBERED = 10_000


class Held(NamedTuple):
    """A claimed delivery, and by the loop's time when it may begin and must end at the latest."""

    delivery: Delivery
    begin_by: float
    end_by: float


class _Lane:
    __slots__ = ("queue", "under_way", "window")

    def __init__(self, window: int) -> None:
        self.queue: dict[str, Held] = {}
        """By the delivery's id: one that is claimed anew keeps its turn."""
        self.under_way = 0
        self.window = window


class Lanes:
    """``places`` in all, at most ``per_origin`` of them for one receiver."""

    def __init__(self, places: int, per_origin: int) -> None:
        if not 1 <= per_origin <= places:
            raise ValueError(
                f"places for one receiver ({per_origin}) must be between one and those there are "
                f"in all ({places})"
            )
        self._free = self._places = places
        self._per_origin = per_origin
        self._lanes: dict[str, _Lane] = {}
        self._windows: dict[str, int] = {}
        """Of lanes that are empty, the latest last."""

    def __bool__(self) -> bool:
        """Whether anything is queued or under way."""
        return bool(self._lanes)

    @property
    def under_way(self) -> int:
        return self._places - self._free

    @property
    def most_to_claim(self) -> int:
        """Of one origin at once."""
        return _ENOUGH * self._per_origin

    def queued(self) -> Iterator[Held]:
        """Of all lanes."""
        return chain.from_iterable(lane.queue.values() for lane in self._lanes.values())

    def put(self, held: Held) -> None:
        origin = origin_of(held.delivery.target)
        lane = self._lanes.get(origin)
        if lane is None:
            window = self._windows.pop(origin, min(_FIRST_WINDOW, self._per_origin))
            lane = self._lanes[origin] = _Lane(window)
        lane.queue[held.delivery.id] = held

    def take(self, now: float) -> list[Held]:
        """What goes out now; each holds a place until ``ended``."""
        taken = []
        for lane in self._lanes.values():
            if not self._free:
                break
            while lane.queue and lane.under_way < min(lane.window, self._free):
                held = lane.queue.pop(next(iter(lane.queue)))
                if now <= held.begin_by:
                    lane.under_way += 1
                    self._free -= 1
                    taken.append(held)
        return taken

    def ended(self, held: Held, *, answered: bool) -> None:
        origin = origin_of(held.delivery.target)
        lane = self._lanes[origin]
        lane.under_way -= 1
        self._free += 1
        lane.window = min(lane.window + 1, self._per_origin) if answered else -(-lane.window // 2)
        self._close_if_empty(origin, lane)

    def forget_late(self, now: float) -> None:
        """Drop what can no longer begin in time."""
        for origin, lane in list(self._lanes.items()):
            for held in list(lane.queue.values()):
                if held.begin_by >= now:
                    break
                del lane.queue[held.delivery.id]
            self._close_if_empty(origin, lane)

    def give_up_queued(self) -> list[Held]:
        """All that is queued; it is no longer ours to send."""
        queued = list(self.queued())
        for origin, lane in list(self._lanes.items()):
            lane.queue.clear()
            self._close_if_empty(origin, lane)
        return queued

    def room(self) -> int:
        """How many more to claim. What is queued behind its lane's window is nobody's hindrance."""
        ready = sum(
            min(len(lane.queue), max(lane.window - lane.under_way, 0))
            for lane in self._lanes.values()
        )
        return max(self._places - ready, 0)

    def full(self) -> list[str]:
        """Origins for which nothing more should be claimed."""
        return [
            origin
            for origin, lane in self._lanes.items()
            if len(lane.queue) >= _ENOUGH * lane.window
        ]

    def _close_if_empty(self, origin: str, lane: _Lane) -> None:
        if lane.under_way or lane.queue:
            return
        del self._lanes[origin]
        self._windows[origin] = lane.window
        if len(self._windows) > _REMEMBERED:
            del self._windows[next(iter(self._windows))]
