"""Gets callbacks from the outbox to their receivers: each at least once, and in order.

A callback is, at any moment, in one of these hands:

*waiting*    in the outbox, due or not. Nobody's; any relay may claim it.
*queued*     claimed under a token by this relay, in the lane of its receiver (``runtime.lanes``).
             Nothing was sent. What has no place, or does not begin within ``begin`` seconds of
             the claim, is put back: it waits as before.
*under way*  one attempt (``runtime.carrying``), over within ``send`` seconds.
*ended*      we know how it went, the store does not yet (``runtime.settling``).
*settled*    delivered; or waiting again, later; or a dead letter.

The claim outlasts all of this: ``begin + send + 2 margin`` seconds from the moment it was *sent*,
not answered. So while our clock runs nobody else claims what we may still be sending, and the
next one of the same run and target does not overtake it.

A relay that closes (*ending*, then *closed*) has some seconds left. It goes on for the runs that
its process owes callbacks for, but begins nothing that would not be over by then, going by how long
that receiver took last. When those runs were tried, or nothing more can begin, it claims no more,
puts back what is queued, and lets everything under way end, whosever it is, until the seconds are
over. So also commands that live for a moment deliver what others left: what they began when they
opened gets the same time as what they owe. What is then *cut short* was an attempt like any other:
it counts, the waits grow, and the last one makes a dead letter.

If the process dies, whatever it held runs out of its claim and is claimed anew: what was queued had
cost no attempt; what was under way or ended may arrive twice, under the same id. The same if it was
frozen: on waking it may finish a send that another relay repeats, and its settlement is refused.
If only an answer of the store is lost: a claim is sent again under the same token and returns what
it held; a settlement is sent again and changes nothing.

One loop talks to the store: it settles what ended and claims what there is room for, in one commit
where the store can. Whatever ends meanwhile shares the next. Settling makes the next callback of
that run and target eligible, and the claim right behind it takes it: a run's callbacks follow each
other without any polling. Polling finds what other processes wrote, and what falls due.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator
from enum import Enum
from functools import partial
from itertools import chain, islice
from math import inf
from typing import NamedTuple

from tenure.aio import ENDLESS, cancel_and_wait, pause, wait_for_event
from tenure.model.errors import StoreLost
from tenure.model.outbox import Delivery, Outcome, PutBack, Settlement, origin_of
from tenure.model.retry import RetryPolicy
from tenure.ports.callbacks import CallbackSender, NotTaken, Outbox
from tenure.runtime.attempts import (
    CUT_SHORT,
    NO_ANSWER,
    DeliveryClaim,
    SettlementBatch,
    all_tried,
    ask,
    outcome_of,
)
from tenure.runtime.relay_timing import RelayTiming

# How many places those may take of whom nobody knows whether they answer.
#
# A receiver is *proven* if it answered last time, *new* if nothing is known of it, *doubtful* if it
# failed last time. An attempt at a silent one holds its place until its time is over, and one run
# can name any number of them. So of all places
#
# - the last fifth is for the proven: who answers is never held up by those who do not;
# - the doubtful take a quarter at most: those who failed do not keep the new from being tried;
# - one run has a fifth at most for those not proven: whatever it names, other runs get theirs
# tried;
# - when half of what those not proven may take is gone, each gets one at a time.


class Standing(Enum):
    """Of a receiver, by how the last attempt there ended."""

    PROVEN = "proven"
    NEW = "new"
    DOUBTFUL = "doubtful"


class Shares:
    """Counts attempts under way, by their delivery's id. Every share is one place at least."""

    def __init__(self, places: int) -> None:
        self._most_unproven = max(places * 4 // 5, 1)
        self._most_doubtful = max(places // 4, 1)
        self._most_of_a_run = max(places // 5, 1)
        self._unproven: dict[str, tuple[Standing, str]] = {}
        self._doubtful = 0
        self._of_run: Counter[str] = Counter()

    def allow(self, standing: Standing, run_id: str, under_way: int) -> bool:
        """Whether one more may begin for a receiver that has so many ``under_way``."""
        if standing is Standing.PROVEN:
            return True
        if standing is Standing.DOUBTFUL and self._doubtful >= self._most_doubtful:
            return False
        most = self._most_unproven if under_way == 0 else self._most_unproven // 2
        return len(self._unproven) < most and self._of_run[run_id] < self._most_of_a_run

    def begin(self, delivery_id: str, standing: Standing, run_id: str) -> None:
        if standing is Standing.PROVEN:
            return
        self._unproven[delivery_id] = standing, run_id
        self._doubtful += standing is Standing.DOUBTFUL
        self._of_run[run_id] += 1

    def end(self, delivery_id: str) -> bool:
        """Whether that gave back a place which others who are not proven may wait for."""
        standing, run_id = self._unproven.pop(delivery_id, (Standing.PROVEN, ""))
        if standing is Standing.PROVEN:
            return False
        self._doubtful -= standing is Standing.DOUBTFUL
        self._of_run[run_id] -= 1
        if not self._of_run[run_id]:
            del self._of_run[run_id]
        return True


# Whom to send to next: one lane for each receiver, so that a bad one holds up nobody else.
#
# A lane is what this relay has claimed for one origin: some under way, the rest queued. These rules
# share the places among lanes:
#
# *The window.* A lane begins with two under way, gains one with every answer and loses half with
# every failure, between one and the most per origin. So one that hangs from the start never gets
# more than two, and one that went bad is soon down to one.
#
# *What is left.* A lane never has more under way than there are places left for others. So lanes
# that were good until a moment ago and all hang now cannot take the last places.
#
# *The shares.* Those who did not answer last time, or were never asked, get a part of the places
# only
# (``runtime.shares``). So however many origins are silent, those who answer have places.
#
# *No more than can be used.* A lane that has enough queued to go on with is ``full``: nothing more
# is
# claimed for it. If all places could be filled from the queues, nothing is claimed at all.
#
# *No more than there is time for.* When the end is near, nothing is begun that would be cut short:
# a
# receiver needs as long as its last attempt took.
#
# What has no share, no time, or could not begin soon enough is passed over: it goes back to the
# outbox at once, where another relay may have room for it, and its origin is left out of our claims
# until a place is given back, or for a while. So we see what waits behind it.


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


# Attempts under way.
#
# Each is made by a task that goes on with the next one when it has ended: a task for each attempt,
# and a timer, would cost as much as all the rest we do for it. One alarm watches over all of them,
# set to the soonest moment at which one of them must have ended.


class Interruption(Enum):
    """An attempt that we ended ourselves."""

    STOPPED = "the target may have got it"
    NOT_BEGUN = "nothing was sent"


Ending = NotTaken | Interruption | None
"""``None``: the target has it."""


class _Attempt(NamedTuple):
    held: Held
    task: asyncio.Task[None]


class AttemptTasks:
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


# Waiting for what the turns of a loop come to.


class LoopTurns:
    """The loop says when a turn begins and how it ended. Who waits, waits for a turn that began
    afterwards: the one under way may have missed what they wait for."""

    def __init__(self) -> None:
        self._number = 0
        self._over = asyncio.Event()
        self._at_rest_in = -1
        """The last turn that found nothing and left nothing to do."""
        self._too_late_in = -1
        """The last turn that left nothing to wait for: there is no time to begin anything."""

    def begin(self) -> None:
        self._number += 1

    def end(self, *, at_rest: bool = False, too_late: bool = False) -> None:
        if at_rest:
            self._at_rest_in = self._number
        if too_late:
            self._too_late_in = self._number
        self._over.set()
        self._over = asyncio.Event()

    async def come_to_rest(self) -> None:
        """``TimeoutError`` if it is too late."""
        asked_in = self._number
        while self._at_rest_in <= asked_in:
            await self._next(asked_in, self._over)

    async def bring_about(self, what: Callable[[], Awaitable[bool]]) -> None:
        """Asks for it now and after each turn. ``TimeoutError`` if it is too late."""
        asked_in = self._number
        while True:
            over = self._over
            if await what():
                return
            await self._next(asked_in, over)

    async def _next(self, asked_in: int, over: asyncio.Event) -> None:
        if self._too_late_in > asked_in:
            raise TimeoutError
        await over.wait()


_log = logging.getLogger("tenure.runtime")

_A_MOMENT = 1.0
"""Seconds for what takes none if all is well."""
_LOCKED_AGAIN = 0.25
"""Seconds until the next try to settle what somebody else keeps the store from."""
_NAMED_AT_ONCE = 500
_SILENT = "the store does not answer about callbacks (%s); they wait until it does"
_LOST = "no callbacks are sent any more: %s"


class Relay:
    """Any number of relays may share an outbox, in one process or in many.

    ``concurrency`` attempts at once in all, ``per_target`` to one receiver (scheme, host, port).
    ``settled`` hears of each attempt whose outcome the store has taken. ``only`` callbacks with
    these ids are sent; who gives it may take out of it what need not be sent any more. The sender
    stays its maker's to close, after the relay.
    """

    def __init__(
        self,
        outbox: Outbox,
        send: CallbackSender,
        policy: RetryPolicy,
        *,
        new_id: Callable[[], str],
        settled: Callable[[Delivery], None] = lambda _: None,
        only: Collection[str] | None = None,
        timing: RelayTiming = RelayTiming(),
        concurrency: int = 100,
        per_target: int = 10,
    ) -> None:
        self._outbox = outbox
        self._policy = policy
        self._new_id = new_id
        self._only = only
        self._timing = timing
        self._lanes = Lanes(concurrency, per_target)
        self._settling = SettlementBatch(outbox, settled)
        self._carrying = AttemptTasks(send, self._following, self._ended)
        self._token: str | None = None
        """Of a claim that was not answered."""
        self._news = asyncio.Event()
        self._deadline = Deadline()
        self._closing = asyncio.Event()
        self._turns = LoopTurns()
        self._failures = 0
        self._asked = False
        """Whether this turn had a question for the store: one without proves nothing of it."""
        self._going: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._going = asyncio.create_task(self._go_on())

    def wake(self) -> None:
        """A hint that something may be due; carries no state, may be lost."""
        self._news.set()

    async def flush(self, seconds: float, run_ids: Collection[str] | None = None) -> bool:
        """Wait until every callback of these runs was tried once or stands behind one that failed;
        whether that was so before ``seconds`` were over. The rest stays in the outbox.

        Without ``run_ids``: until nothing is due, as far as one can tell from here.
        """
        self.wake()
        try:
            async with asyncio.timeout(seconds):
                if run_ids is None:
                    await self._turns.come_to_rest()
                else:
                    for run_id in run_ids:
                        await self._turns.bring_about(partial(self._has_tried, run_id))
        except TimeoutError:
            return False
        return True

    async def close(self, seconds: float = 5.0, run_ids: Collection[str] | None = ()) -> None:
        """``flush`` for these runs, claim no more, and let what is under way end: all within
        ``seconds``. Cancelled, it waits for nothing more.

        What is then cut short is settled as an attempt that failed, so that people see why. What
        was only queued is put back: another relay may have it at once.
        """
        if self._going is None:
            self._closing.set()
            return
        self._deadline = Deadline(self._time() + seconds, seconds / 2)
        try:
            if run_ids is None or run_ids:
                await self.flush(seconds, run_ids)
            self._claim_no_more()
            await _ends(self._going, max(self._deadline.end_by - self._time(), 0.0))
        finally:
            self._claim_no_more()
            self._carrying.stop()
            await self._let_go(self._going)

    def _claim_no_more(self) -> None:
        self._closing.set()
        self.wake()

    async def _let_go(self, going: asyncio.Task[None]) -> None:
        try:
            await _ends(going, _A_MOMENT)
        finally:
            await cancel_and_wait(going)
        if self._settling:
            _log.warning(
                "%d callbacks were sent and the store could not be told: they will be sent again",
                len(self._settling),
            )

    # The loop

    async def _go_on(self) -> None:
        while True:
            self._news.clear()  # what comes from now on may be missed by this turn
            wait: float | None = None
            try:
                more = await self._settle_and_claim()
            except Exception as error:  # noqa: BLE001  whatever it is, callbacks must be tried again
                more, wait = False, self._wait_after(error)
            else:
                if self._asked:
                    self._back_in_touch()
            if self._closing.is_set() and not (self._lanes or self._settling):
                return
            if wait is not None:
                await self._pause(wait)
            elif not (more or self._settling.at_once):
                await wait_for_event(self._news, self._until_the_next_look())

    def _until_the_next_look(self) -> float:
        return min(self._timing.poll, _LOCKED_AGAIN) if self._settling else self._timing.poll

    async def _pause(self, seconds: float) -> None:
        """Unless closing begins meanwhile: then there is one more try, and perhaps nothing left to
        wait for."""
        if self._closing.is_set():
            await pause(seconds)
        else:
            await wait_for_event(self._closing, seconds)

    async def _settle_and_claim(self) -> bool:
        """Whether to go on at once: there may be more that we have room for."""
        self._turns.begin()
        at_rest = too_late = False
        try:
            more = await self._claim()
            self._carrying.begin()
            self._put_back(self._lanes.pass_over(self._time(), self._deadline))
            if not (more or self._lanes or self._settling):
                at_rest = not self._lanes.passed_over
                too_late = not at_rest and self._ending
        finally:
            self._turns.end(at_rest=at_rest, too_late=too_late)
        return more

    async def _claim(self) -> bool:
        """As much as there is room for, and settle what ended before."""
        sent_at = self._time()
        if self._closing.is_set():
            self._put_back(self._lanes.give_up_queued())
        room = self._lanes.room()
        claims = bool(room) and not self._closing.is_set()
        self._asked = claims or bool(self._settling)
        if not claims:
            await self._settling.settle()
            return False
        self._token = self._token or self._new_id()
        claimed = await self._settling.settle_and_claim(
            DeliveryClaim(
                self._token,
                limit=room,
                seconds=self._timing.claim,
                per_origin=self._lanes.most_to_claim,
                except_origins=self._lanes.left_out(sent_at),
                only=None if self._only is None else list(islice(self._only, _NAMED_AT_ONCE)),
            )
        )
        self._token = None
        limits = self._timing.limits(sent_at)
        for delivery in claimed:
            held = Held(delivery, *limits)
            if not self._carrying.renew(held):
                self._lanes.put(held)
        return len(claimed) == room

    def _following(self) -> list[Held]:
        if self._closing.is_set():
            return []
        return self._lanes.take(self._time(), self._deadline)

    def _ended(self, held: Held, ending: Ending) -> None:
        self._settle(held, self._outcome(held.delivery, ending))
        answered = ending is None or (isinstance(ending, NotTaken) and not ending.again)
        self._lanes.ended(held, self._time(), answered=answered)
        self._news.set()

    def _put_back(self, untried: list[Held]) -> None:
        for held in untried:
            self._settle(held, PutBack())

    def _settle(self, held: Held, outcome: Outcome) -> None:
        delivery = held.delivery
        self._settling.add(Settlement(delivery.id, delivery.token or "", outcome))

    def _outcome(self, delivery: Delivery, ending: Ending) -> Outcome:
        match ending:
            case Interruption.NOT_BEGUN:
                return PutBack()
            case Interruption.STOPPED:
                ending = CUT_SHORT
        return outcome_of(ending, delivery, self._policy, random.random())  # noqa: S311

    # A store that does not answer

    def _wait_after(self, error: Exception) -> float:
        self._failures += 1
        if self._failures == 1:
            lost = isinstance(error, StoreLost)  # for good: nothing waits in it
            _log.warning(_LOST if lost else _SILENT, str(error) or type(error).__name__)
        return ENDLESS.wait_after(self._failures, luck=random.random()) or 0.0  # noqa: S311

    def _back_in_touch(self) -> None:
        if self._failures:
            _log.warning("the store answers about callbacks again")
            self._failures = 0

    # Waiting for an end

    async def _has_tried(self, run_id: str) -> bool:
        """While we hold anything of this run there is more to come: the store is not asked."""
        held = chain(self._lanes.queued(), self._carrying)
        if any(each.delivery.run_id == run_id for each in held):
            return False
        try:
            return await all_tried(self._outbox, run_id)
        except Exception as error:  # noqa: BLE001  whatever it is, it must be asked again
            _log.info("cannot see whether the callbacks of run %s went out: %s", run_id, error)
            return False

    @property
    def _ending(self) -> bool:
        return self._deadline.end_by < inf

    @staticmethod
    def _time() -> float:
        return asyncio.get_running_loop().time()


async def _ends(task: asyncio.Task[None], seconds: float) -> bool:
    done, _ = await asyncio.wait([task], timeout=seconds)
    return bool(done)
