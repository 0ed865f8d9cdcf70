"""Whom to send to next: one lane for each receiver, so that a bad one holds up nobody else.

A lane is what this relay has claimed for one origin: some under way, the rest queued. These rules
share the places among lanes:

*The window.* A lane begins with two under way, gains one with every answer and loses half with
every failure, between one and the most per origin. So one that hangs from the start never gets
more than two, and one that went bad is soon down to one.

*What is left.* A lane never has more under way than there are places left for others. So lanes
that were good until a moment ago and all hang now cannot take the last places.

*The shares.* Those who did not answer last time, or were never asked, get a part of the places only
(``runtime.shares``). So however many origins are silent, those who answer have places.

*No more than can be used.* A lane that has enough queued to go on with is ``full``: nothing more is
claimed for it. If all places could be filled from the queues, nothing is claimed at all.

*No more than there is time for.* When the end is near, nothing is begun that would be cut short: a
receiver needs as long as its last attempt took.

What has no share, no time, or could not begin soon enough is passed over: it goes back to the
outbox at once, where another relay may have room for it, and its origin is left out of our claims
until a place is given back, or for a while. So we see what waits behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from math import inf
from typing import NamedTuple

from tenure.model.outbox import Delivery, origin_of
from tenure.runtime.shares import Shares, Standing

_FIRST_WINDOW = 2
_ENOUGH = 2
"""Windows. One goes out while the store is asked for the next."""
_REMEMBERED = 10_000
_PASSED_OVER = 30.0
"""Seconds at most. What we have no place for is looked at again by then: some of it may be of
another run, with a share of its own."""


class Held(NamedTuple):
    """A claimed delivery, and by the loop's time when it may begin and must end at the latest."""

    delivery: Delivery
    begin_by: float
    end_by: float


class Deadline(NamedTuple):
    """When all attempts must have ended, and how long to allow for a receiver never heard of."""

    end_by: float = inf
    unheard_of: float = 0.0


class _Lane:
    __slots__ = ("queue", "standing", "took", "under_way", "window")

    def __init__(self, window: int, standing: Standing) -> None:
        self.queue: dict[str, Held] = {}
        """By the delivery's id: one that is claimed anew keeps its turn."""
        self.under_way = 0
        self.window = window
        self.standing = standing
        self.took: float | None = None
        """Seconds, the last attempt."""


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
        self._shares = Shares(places)
        self._lanes: dict[str, _Lane] = {}
        self._empty: dict[str, _Lane] = {}
        """Remembered for what they tell of their receivers, the latest last."""
        self._begun_at: dict[str, float] = {}
        """By the delivery's id."""
        self._passed_over: dict[str, float] = {}
        """Origins, and until when; the one that waits for longest is first."""

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

    @property
    def passed_over(self) -> bool:
        """Whether something may be due that we have no place for."""
        return bool(self._passed_over)

    def queued(self) -> Iterator[Held]:
        """Of all lanes."""
        return chain.from_iterable(lane.queue.values() for lane in self._lanes.values())

    def put(self, held: Held) -> None:
        origin = origin_of(held.delivery.target)
        lane = self._lanes.get(origin)
        if lane is None:
            known = origin in self._empty
            lane = self._empty.pop(origin) if known else self._new(held.delivery)
            self._lanes[origin] = lane
        lane.queue[held.delivery.id] = held

    def take(self, now: float, deadline: Deadline = Deadline()) -> list[Held]:
        """What goes out now; each holds a place until ``ended``."""
        taken = []
        for lane in self._lanes.values():
            if not self._free:
                break
            if not _has_time(lane, now, deadline):
                continue
            while lane.queue and lane.under_way < min(lane.window, self._free):
                ready = (each for each in lane.queue.values() if self._goes(lane, each, now))
                held = next(ready, None)
                if held is None:
                    break
                self._begin(lane, held, now)
                taken.append(held)
        return taken

    def ended(self, held: Held, now: float, *, answered: bool) -> None:
        """``answered`` if the receiver works: it took the callback, or refused it for good."""
        delivery = held.delivery
        origin = origin_of(delivery.target)
        lane = self._lanes[origin]
        lane.under_way -= 1
        self._free += 1
        lane.took = now - self._begun_at.pop(delivery.id)
        lane.window = min(lane.window + 1, self._per_origin) if answered else -(-lane.window // 2)
        lane.standing = Standing.PROVEN if answered else Standing.DOUBTFUL
        self._passed_over.pop(origin, None)
        if self._shares.end(delivery.id) and self._passed_over:
            del self._passed_over[next(iter(self._passed_over))]
        self._close_if_empty(origin, lane)

    def pass_over(self, now: float, deadline: Deadline = Deadline()) -> list[Held]:
        """What is queued and cannot begin: no longer ours."""
        passed = []
        for origin, lane in list(self._lanes.items()):
            time, proven = _has_time(lane, now, deadline), lane.standing is Standing.PROVEN
            for held in list(lane.queue.values()):
                if time and held.begin_by >= now and (proven or self._has_a_share(lane, held)):
                    continue
                del lane.queue[held.delivery.id]
                passed.append(held)
                self._passed_over.pop(origin, None)
                self._passed_over[origin] = now + _PASSED_OVER
            self._close_if_empty(origin, lane)
        return passed

    def give_up_queued(self) -> list[Held]:
        """All that is queued; it is no longer ours to send."""
        queued = list(self.queued())
        for origin, lane in list(self._lanes.items()):
            lane.queue.clear()
            self._close_if_empty(origin, lane)
        return queued

    def room(self) -> int:
        """How many more to claim. What is queued behind its lane's window is nobody's hindrance;
        when too many are passed over to be left out by name, some must have their turn first."""
        if len(self._passed_over) >= _REMEMBERED:
            return 0
        ready = sum(
            min(len(lane.queue), max(lane.window - lane.under_way, 0))
            for lane in self._lanes.values()
        )
        return max(self._places - ready, 0)

    def left_out(self, now: float) -> list[str]:
        """Origins for which nothing more should be claimed: full, or passed over."""
        while self._passed_over:
            origin = next(iter(self._passed_over))
            if self._passed_over[origin] > now:
                break
            del self._passed_over[origin]
        full = (
            origin
            for origin, lane in self._lanes.items()
            if len(lane.queue) >= _ENOUGH * lane.window
        )
        return list(dict.fromkeys(chain(full, self._passed_over)))

    def _new(self, delivery: Delivery) -> _Lane:
        standing = Standing.DOUBTFUL if delivery.attempts else Standing.NEW
        return _Lane(min(_FIRST_WINDOW, self._per_origin), standing)

    def _goes(self, lane: _Lane, held: Held, now: float) -> bool:
        return now <= held.begin_by and self._shares.allow(
            lane.standing, held.delivery.run_id, lane.under_way
        )

    def _has_a_share(self, lane: _Lane, held: Held) -> bool:
        """Or will have one without our doing: what waits behind its lane's window does."""
        return lane.under_way >= lane.window or self._shares.allow(
            lane.standing, held.delivery.run_id, lane.under_way
        )

    def _begin(self, lane: _Lane, held: Held, now: float) -> None:
        delivery = held.delivery
        del lane.queue[delivery.id]
        lane.under_way += 1
        self._free -= 1
        self._begun_at[delivery.id] = now
        self._shares.begin(delivery.id, lane.standing, delivery.run_id)

    def _close_if_empty(self, origin: str, lane: _Lane) -> None:
        if lane.under_way or lane.queue:
            return
        del self._lanes[origin]
        if lane.took is None:
            return
        self._empty[origin] = lane
        if len(self._empty) > _REMEMBERED:
            del self._empty[next(iter(self._empty))]


def _has_time(lane: _Lane, now: float, deadline: Deadline) -> bool:
    took = deadline.unheard_of if lane.took is None else lane.took
    return now + took <= deadline.end_by
