"""Delivers callbacks from the outbox to their receivers: each at least once, and in order.

A callback is always in one of these states:

*waiting*    in the outbox, due or not. Any relay may claim it.
*queued*     claimed under a token by this relay, in the lane of its receiver (``Lanes``). Nothing
             was sent. Without a free slot, or if it does not begin within ``begin`` seconds of the
             claim, it is put back and waits as before.
*under way*  one attempt (``AttemptTasks``), over within ``send`` seconds.
*ended*      the outcome is known here and not yet settled in the store (``SettlementBatch``).
*settled*    delivered; or waiting again, later; or a dead letter.

The claim outlasts all of this: ``begin + send + 2 margin`` seconds from when it was *sent*, not
answered. So no other relay claims a callback that may still be sent here, and the next one of the
same run and target does not overtake it.

A closing relay has some seconds left. It continues with the runs that its process owes callbacks
for, and begins no attempt that would end too late, by how long the receiver took last. When these
runs were tried, or nothing more can begin, it claims no more, puts back what is queued, and waits
for all attempts under way. So short-lived commands also deliver callbacks that other processes
left. An attempt that is *cut short* at the end counts like any other.

If the process dies, its claims expire and are claimed again: a queued callback has cost no attempt;
one under way or ended may arrive twice, under the same id. The same holds if the process was
frozen: after waking it may finish a request that another relay repeats, and its settlement is
refused. If only an answer of the store is lost, a claim is sent again under the same token and
returns the same callbacks; a settlement is sent again and changes nothing.

One loop calls the store: it settles what has ended and claims what there is room for, in one commit
where the store can. Settling makes the next callback of that run and target eligible, and the claim
after it takes it, so that a run's callbacks follow each other without polling. Polling finds what
other processes wrote, and what falls due.
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
from tenure.model.retry_policy import RetryPolicy
from tenure.ports.callbacks import CallbackSender, DeliveryClaim, NotTaken, Outbox
from tenure.runtime.callback_attempts import (
    CUT_SHORT,
    NO_ANSWER,
    SettlementBatch,
    all_tried,
    ask,
    outcome_of,
)
from tenure.runtime.options import RelayTiming


class Standing(Enum):
    """A receiver is proven if its last attempt was answered, doubtful if it failed, else new."""

    PROVEN = "proven"
    NEW = "new"
    DOUBTFUL = "doubtful"


class Shares:
    """Limits the slots of receivers that may not answer; counts attempts by their delivery's id.

    An attempt at a silent receiver occupies its slot until it times out, and one run can name any
    number of receivers. So of all slots (and at least one each)

    - the last fifth is for proven receivers: they are never delayed by silent ones;
    - doubtful receivers get a quarter at most, so that new ones are tried;
    - the unproven receivers of one run get a fifth at most, so that other runs' are tried;
    - once half of the slots for unproven receivers are taken, each gets one at a time.
    """

    def __init__(self, places: int) -> None:
        self._max_unproven = max(places * 4 // 5, 1)
        self._max_doubtful = max(places // 4, 1)
        self._max_per_run = max(places // 5, 1)
        self._unproven: dict[str, tuple[Standing, str]] = {}
        self._doubtful = 0
        self._of_run: Counter[str] = Counter()

    def allow(self, standing: Standing, run_id: str, under_way: int) -> bool:
        """Whether a receiver with ``under_way`` attempts may get one more."""
        if standing is Standing.PROVEN:
            return True
        if standing is Standing.DOUBTFUL and self._doubtful >= self._max_doubtful:
            return False
        limit = self._max_unproven if under_way == 0 else self._max_unproven // 2
        return len(self._unproven) < limit and self._of_run[run_id] < self._max_per_run

    def begin(self, delivery_id: str, standing: Standing, run_id: str) -> None:
        if standing is Standing.PROVEN:
            return
        self._unproven[delivery_id] = standing, run_id
        self._doubtful += standing is Standing.DOUBTFUL
        self._of_run[run_id] += 1

    def end(self, delivery_id: str) -> bool:
        """Whether this freed a slot that other unproven receivers may wait for."""
        standing, run_id = self._unproven.pop(delivery_id, (Standing.PROVEN, ""))
        if standing is Standing.PROVEN:
            return False
        self._doubtful -= standing is Standing.DOUBTFUL
        self._of_run[run_id] -= 1
        if not self._of_run[run_id]:
            del self._of_run[run_id]
        return True


_FIRST_WINDOW = 2
_QUEUED_WINDOWS = 2
"""Queue length of a full lane, in windows: one is sent while the next is claimed."""
_MAX_REMEMBERED = 10_000
_PASS_OVER_S = 30.0
"""An origin is left out of claims for no longer: its next callback may be of another run, with a
share of its own."""


class Held(NamedTuple):
    """A claimed delivery, and the loop times by which it must begin and end."""

    delivery: Delivery
    begin_by: float
    end_by: float


class Deadline(NamedTuple):
    """When all attempts must have ended, and the duration assumed for unknown receivers."""

    end_by: float = inf
    default_took: float = 0.0


class _Lane:
    __slots__ = ("queue", "standing", "took", "under_way", "window")

    def __init__(self, window: int, standing: Standing) -> None:
        self.queue: dict[str, Held] = {}
        """By the delivery's id: one that is claimed again keeps its position."""
        self.under_way = 0
        self.window = window
        self.standing = standing
        self.took: float | None = None
        """Seconds of the last attempt."""


class Lanes:
    """Claimed deliveries by receiver (origin), so that a bad receiver delays no other; decides what
    is sent next. ``places`` concurrent attempts in all, at most ``per_origin`` for one receiver.

    *Window.* A lane starts with two attempts at once, gains one with every answer and loses half
    with every failure, between one and ``per_origin``.

    *Remaining slots.* A lane has no more attempts under way than there are free slots. So lanes
    that were good and all hang now cannot take the last slots.

    *Shares.* Receivers that did not answer last time, or are new, get only a part (``Shares``).

    *Demand.* A lane with enough queued is full: nothing more is claimed for it. If all slots could
    be filled from the queues, nothing is claimed at all.

    *Time.* Near the end no attempt begins that would be cut short.

    A delivery that has no share, no time, or could not begin soon enough is passed over: it goes
    back to the outbox at once, and its origin is left out of claims until a slot is freed, or for a
    while, so that what waits behind it is seen.
    """

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
        """Lanes without deliveries, kept for their window and standing, the latest last."""
        self._begun_at: dict[str, float] = {}
        """By the delivery's id."""
        self._passed_over: dict[str, float] = {}
        """Origins and until when (loop time), the oldest first."""

    def __bool__(self) -> bool:
        """Whether anything is queued or under way."""
        return bool(self._lanes)

    @property
    def under_way(self) -> int:
        return self._places - self._free

    @property
    def claim_limit_per_origin(self) -> int:
        """Deliveries of one origin in a claim."""
        return _QUEUED_WINDOWS * self._per_origin

    @property
    def passed_over(self) -> bool:
        """Whether something may be due for which there is no slot."""
        return bool(self._passed_over)

    def queued(self) -> Iterator[Held]:
        """The queued deliveries of all lanes."""
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
        """What is sent now; each occupies a slot until ``ended``."""
        taken = []
        for lane in self._lanes.values():
            if not self._free:
                break
            if not _has_time(lane, now, deadline):
                continue
            while lane.queue and lane.under_way < min(lane.window, self._free):
                ready = (each for each in lane.queue.values() if self._may_begin(lane, each, now))
                held = next(ready, None)
                if held is None:
                    break
                self._begin(lane, held, now)
                taken.append(held)
        return taken

    def ended(self, held: Held, now: float, *, answered: bool) -> None:
        """``answered``: the receiver took the callback, or refused it for good."""
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
        """Remove and return what is queued and cannot begin."""
        passed = []
        for origin, lane in list(self._lanes.items()):
            time, proven = _has_time(lane, now, deadline), lane.standing is Standing.PROVEN
            for held in list(lane.queue.values()):
                if time and held.begin_by >= now and (proven or self._has_a_share(lane, held)):
                    continue
                del lane.queue[held.delivery.id]
                passed.append(held)
                self._passed_over.pop(origin, None)
                self._passed_over[origin] = now + _PASS_OVER_S
            self._close_if_empty(origin, lane)
        return passed

    def drop_queued(self) -> list[Held]:
        """Remove and return all that is queued."""
        queued = list(self.queued())
        for origin, lane in list(self._lanes.items()):
            lane.queue.clear()
            self._close_if_empty(origin, lane)
        return queued

    def room(self) -> int:
        """How many more to claim. Deliveries beyond their lane's window do not count. Zero while
        too many origins are passed over to be left out by name."""
        if len(self._passed_over) >= _MAX_REMEMBERED:
            return 0
        ready = sum(
            min(len(lane.queue), max(lane.window - lane.under_way, 0))
            for lane in self._lanes.values()
        )
        return max(self._places - ready, 0)

    def excluded_origins(self, now: float) -> list[str]:
        """Origins for which nothing more should be claimed: full, or passed over."""
        while self._passed_over:
            origin = next(iter(self._passed_over))
            if self._passed_over[origin] > now:
                break
            del self._passed_over[origin]
        full = (
            origin
            for origin, lane in self._lanes.items()
            if len(lane.queue) >= _QUEUED_WINDOWS * lane.window
        )
        return list(dict.fromkeys(chain(full, self._passed_over)))

    def _new(self, delivery: Delivery) -> _Lane:
        standing = Standing.DOUBTFUL if delivery.attempts else Standing.NEW
        return _Lane(min(_FIRST_WINDOW, self._per_origin), standing)

    def _may_begin(self, lane: _Lane, held: Held, now: float) -> bool:
        return now <= held.begin_by and self._shares.allow(
            lane.standing, held.delivery.run_id, lane.under_way
        )

    def _has_a_share(self, lane: _Lane, held: Held) -> bool:
        """Whether it has a share, or waits behind its lane's window and will get one."""
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
        if len(self._empty) > _MAX_REMEMBERED:
            del self._empty[next(iter(self._empty))]


def _has_time(lane: _Lane, now: float, deadline: Deadline) -> bool:
    took = deadline.default_took if lane.took is None else lane.took
    return now + took <= deadline.end_by


class Interruption(Enum):
    """An attempt that was ended by the relay."""

    STOPPED = "the target may have got it"
    NOT_BEGUN = "nothing was sent"


Ending = NotTaken | Interruption | None
"""``None``: delivered."""


class _Attempt(NamedTuple):
    held: Held
    task: asyncio.Task[None]


class AttemptTasks:
    """Attempts under way. ``take_next`` returns what may be sent now; ``ended`` is called with each
    attempt, before ``take_next`` is called again.

    A task continues with the next attempt when one has ended, since a task and a timer for each
    would cost as much as the rest of the work. One timer, for the earliest deadline, serves all.
    """

    def __init__(
        self,
        sender: CallbackSender,
        take_next: Callable[[], list[Held]],
        ended: Callable[[Held, Ending], None],
    ) -> None:
        self._sender = sender
        self._take_next = take_next
        self._ended = ended
        self._under_way: dict[str, _Attempt] = {}
        """By the delivery's id."""
        self._timer: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[Held]:
        return (attempt.held for attempt in self._under_way.values())

    def begin(self) -> None:
        for held in self._take_next():
            self._start(held)

    def renew(self, held: Held) -> bool:
        """Whether it is under way already: the machine slept, and its clock with it, but not the
        store's. The attempt continues under the new claim."""
        attempt = self._under_way.get(held.delivery.id)
        if attempt is None:
            return False
        self._under_way[held.delivery.id] = attempt._replace(held=held)
        return True

    def stop(self) -> None:
        """End all of them now."""
        for attempt in self._under_way.values():
            attempt.task.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _start(self, held: Held) -> None:
        task = asyncio.create_task(self._send(held))
        self._note(held, task)
        task.add_done_callback(partial(self._gone, held))

    async def _send(self, held: Held) -> None:
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
            take_next = self._take_next()
            if not take_next:
                return
            held, *others = take_next
            self._note(held, task)
            for other in others:
                self._start(other)

    def _note(self, held: Held, task: asyncio.Task[None]) -> None:
        self._under_way[held.delivery.id] = _Attempt(held, task)
        if self._timer is None or held.end_by < self._timer.when():
            self._set_timer(held.end_by)

    def _end(self, held: Held, ending: Ending) -> None:
        """Report the end, with the newest claim of the delivery."""
        self._ended(self._under_way.pop(held.delivery.id).held, ending)

    def _gone(self, held: Held, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # before it could begin
            self._end(held, Interruption.NOT_BEGUN)

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at, self._cancel_overdue)

    def _cancel_overdue(self) -> None:
        """Cancel attempts past their deadline, and set the timer for the next."""
        now, self._timer = asyncio.get_running_loop().time(), None
        for attempt in self._under_way.values():
            if attempt.held.end_by <= now:
                attempt.task.cancel()
        left = [held.end_by for held in self if held.end_by > now]
        if left:
            self._set_timer(min(left))


class LoopTurns:
    """Lets callers wait for a result of the relay's loop, which reports the begin and end of its
    turns. Only turns count that begin after the call: the one under way may have missed what the
    caller waits for."""

    def __init__(self) -> None:
        self._number = 0
        self._over = asyncio.Event()
        self._idle_in = -1
        """The last turn that found nothing and left nothing to do."""
        self._too_late_in = -1
        """The last turn after which no more attempt can begin in time."""

    def begin(self) -> None:
        self._number += 1

    def end(self, *, idle: bool = False, too_late: bool = False) -> None:
        if idle:
            self._idle_in = self._number
        if too_late:
            self._too_late_in = self._number
        self._over.set()
        self._over = asyncio.Event()

    async def wait_until_idle(self) -> None:
        """``TimeoutError`` if it is too late."""
        asked_in = self._number
        while self._idle_in <= asked_in:
            await self._next(asked_in, self._over)

    async def wait_until(self, what: Callable[[], Awaitable[bool]]) -> None:
        """Check ``what`` now and after each turn. ``TimeoutError`` if it is too late."""
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

_GRACE_S = 1.0
"""For the loop to end, which takes no time if all is well."""
_LOCKED_RETRY_S = 0.25
"""Until the next try to settle deliveries whose rows are locked."""
_MAX_IDS_PER_CLAIM = 500
_SILENT = "the store does not answer about callbacks (%s); they wait until it does"
_LOST = "no callbacks are sent any more: %s"


class Relay:
    """Any number of relays may share an outbox, in one process or in many.

    ``concurrency`` attempts at once in all, ``per_target`` to one receiver (scheme, host, port).
    ``settled`` is called with each delivery whose outcome the store has taken. ``only``: callbacks
    with these ids are sent; the caller may remove ids meanwhile. The caller closes the sender,
    after the relay.
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
        self._settlements = SettlementBatch(outbox, settled)
        self._attempts = AttemptTasks(send, self._take_next, self._ended)
        self._token: str | None = None
        """The token of a claim that was not answered."""
        self._wakeup = asyncio.Event()
        self._deadline = Deadline()
        self._closing = asyncio.Event()
        self._turns = LoopTurns()
        self._failures = 0
        self._store_called = False
        """Whether this turn has called the store."""
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._task = asyncio.create_task(self._run())

    def wake(self) -> None:
        """A hint that something may be due; carries no state, may be lost."""
        self._wakeup.set()

    async def flush(self, seconds: float, run_ids: Collection[str] | None = None) -> bool:
        """Wait until every callback of these runs was tried once or waits behind one that failed;
        false if that took longer than ``seconds``. The rest stays in the outbox.

        Without ``run_ids``: until nothing is due, as far as can be seen from here.
        """
        self.wake()
        try:
            async with asyncio.timeout(seconds):
                if run_ids is None:
                    await self._turns.wait_until_idle()
                else:
                    for run_id in run_ids:
                        await self._turns.wait_until(partial(self._has_tried, run_id))
        except TimeoutError:
            return False
        return True

    async def close(self, seconds: float = 5.0, run_ids: Collection[str] | None = ()) -> None:
        """``flush`` these runs, claim no more, and let attempts under way end, all within
        ``seconds``. Cancelled, it stops waiting.

        What is then cut short is settled as a failed attempt, with this reason. What was only
        queued is put back, for another relay to claim at once.
        """
        if self._task is None:
            self._closing.set()
            return
        self._deadline = Deadline(self._time() + seconds, seconds / 2)
        try:
            if run_ids is None or run_ids:
                await self.flush(seconds, run_ids)
            self._claim_no_more()
            await _ends(self._task, max(self._deadline.end_by - self._time(), 0.0))
        finally:
            self._claim_no_more()
            self._attempts.stop()
            await self._end_task(self._task)

    def _claim_no_more(self) -> None:
        self._closing.set()
        self.wake()

    async def _end_task(self, task: asyncio.Task[None]) -> None:
        try:
            await _ends(task, _GRACE_S)
        finally:
            await cancel_and_wait(task)
        if self._settlements:
            _log.warning(
                "%d callbacks were sent and the store could not be told: they will be sent again",
                len(self._settlements),
            )

    # The loop.

    async def _run(self) -> None:
        while True:
            self._wakeup.clear()  # later hints may be missed by this turn
            wait: float | None = None
            try:
                more = await self._settle_and_claim()
            except Exception as error:  # noqa: BLE001  whatever it is, callbacks must be tried again
                more, wait = False, self._wait_after(error)
            else:
                if self._store_called:
                    self._note_answer()
            if self._closing.is_set() and not (self._lanes or self._settlements):
                return
            if wait is not None:
                await self._pause(wait)
            elif not (more or self._settlements.at_once):
                await wait_for_event(self._wakeup, self._poll_interval())

    def _poll_interval(self) -> float:
        return min(self._timing.poll, _LOCKED_RETRY_S) if self._settlements else self._timing.poll

    async def _pause(self, seconds: float) -> None:
        """Sleep, unless closing begins meanwhile: then there is one more try."""
        if self._closing.is_set():
            await pause(seconds)
        else:
            await wait_for_event(self._closing, seconds)

    async def _settle_and_claim(self) -> bool:
        """One turn; whether to continue at once, since more may be due that there is room for."""
        self._turns.begin()
        idle = too_late = False
        try:
            more = await self._claim()
            self._attempts.begin()
            self._put_back(self._lanes.pass_over(self._time(), self._deadline))
            if not (more or self._lanes or self._settlements):
                idle = not self._lanes.passed_over
                too_late = not idle and self._ending
        finally:
            self._turns.end(idle=idle, too_late=too_late)
        return more

    async def _claim(self) -> bool:
        """Claim as much as there is room for, and settle what has ended."""
        sent_at = self._time()
        if self._closing.is_set():
            self._put_back(self._lanes.drop_queued())
        room = self._lanes.room()
        claims = bool(room) and not self._closing.is_set()
        self._store_called = claims or bool(self._settlements)
        if not claims:
            await self._settlements.settle()
            return False
        self._token = self._token or self._new_id()
        claimed = await self._settlements.settle_and_claim(
            DeliveryClaim(
                self._token,
                limit=room,
                seconds=self._timing.claim,
                per_origin=self._lanes.claim_limit_per_origin,
                except_origins=self._lanes.excluded_origins(sent_at),
                only=None if self._only is None else list(islice(self._only, _MAX_IDS_PER_CLAIM)),
            )
        )
        self._token = None
        limits = self._timing.limits(sent_at)
        for delivery in claimed:
            held = Held(delivery, *limits)
            if not self._attempts.renew(held):
                self._lanes.put(held)
        return len(claimed) == room

    def _take_next(self) -> list[Held]:
        if self._closing.is_set():
            return []
        return self._lanes.take(self._time(), self._deadline)

    def _ended(self, held: Held, ending: Ending) -> None:
        self._settle(held, self._outcome(held.delivery, ending))
        answered = ending is None or (isinstance(ending, NotTaken) and not ending.again)
        self._lanes.ended(held, self._time(), answered=answered)
        self._wakeup.set()

    def _put_back(self, untried: list[Held]) -> None:
        for held in untried:
            self._settle(held, PutBack())

    def _settle(self, held: Held, outcome: Outcome) -> None:
        delivery = held.delivery
        self._settlements.add(Settlement(delivery.id, delivery.token or "", outcome))

    def _outcome(self, delivery: Delivery, ending: Ending) -> Outcome:
        match ending:
            case Interruption.NOT_BEGUN:
                return PutBack()
            case Interruption.STOPPED:
                ending = CUT_SHORT
        return outcome_of(ending, delivery, self._policy, random.random())  # noqa: S311

    # A store that does not answer.

    def _wait_after(self, error: Exception) -> float:
        self._failures += 1
        if self._failures == 1:
            lost = isinstance(error, StoreLost)  # for good
            _log.warning(_LOST if lost else _SILENT, str(error) or type(error).__name__)
        return ENDLESS.wait_after(self._failures, luck=random.random()) or 0.0  # noqa: S311

    def _note_answer(self) -> None:
        if self._failures:
            _log.warning("the store answers about callbacks again")
            self._failures = 0

    # Waiting for an end.

    async def _has_tried(self, run_id: str) -> bool:
        """Whether the run's callbacks were all tried. Without a call of the store while any is
        queued or under way here."""
        held = chain(self._lanes.queued(), self._attempts)
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
