"""What a process does about callbacks, for one store.

Whoever changes a run (owner, reconciler, operator) says here what it has just made durable. The
callbacks that came into being with it are then

- in the outbox, if the store has one: the relay is woken. Nothing is lost if we die right here.
- with whoever looks after the store (``Attended``): then they are none of our business.
- else only in our hands: they are sent from memory, in order, by the same policy. What is given up
  becomes the run's ``callback_error`` and an event, and so does what is left when the process ends;
  if it dies, that is gone without a word.

The application's own notifier is called from memory too: no other process could call it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Protocol
from uuid import NAMESPACE_URL, uuid5
from weakref import WeakValueDictionary

from msgspec.structs import replace

from tenure.aio import pause, until_answered
from tenure.model import compose
from tenure.model.errors import VersionConflict
from tenure.model.outbox import Delivery, GiveUp, Outcome, RetryLater, origin_of
from tenure.model.retry import RetryPolicy
from tenure.model.snapshot import CallbackTarget, RunSnapshot
from tenure.model.status import TERMINAL_RUN, DeliveryState
from tenure.model.update import CallbackFailure, Event, NewDelivery, Receipt, record
from tenure.ports.callbacks import CallbackSender, NotTaken, Outbox, RunStateNotifier
from tenure.ports.store import Attended, RunStateStore
from tenure.runtime.attempts import attempt, note_given_up, outcome_of
from tenure.runtime.callback_settings import CallbackSettings
from tenure.runtime.group_commit import GroupCommit
from tenure.runtime.relay import Relay
from tenure.wire.callbacks import payload

# Which of our runs still owe callbacks, as far as one can tell from here.


_MOST = 1000


class OwedCallbacks:
    """Knows what this process put into the outbox and its relay has not got rid of. What another
    relay gets rid of stays here: it is for the store to say in the end.

    Bounded: the run that was not written to for longest is forgotten first.
    """

    def __init__(self) -> None:
        self._left: OrderedDict[str, set[str]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._left)

    @property
    def run_ids(self) -> tuple[str, ...]:
        return tuple(self._left)

    def add(self, run_id: str, delivery_ids: Iterable[str]) -> None:
        self._left.setdefault(run_id, set()).update(delivery_ids)
        self._left.move_to_end(run_id)
        if len(self._left) > _MOST:
            self._left.popitem(last=False)

    def settled(self, delivery: Delivery) -> None:
        """One that waits again is still owed. Others of the same run may be another process's."""
        left = self._left.get(delivery.run_id)
        if left is None or delivery.state is DeliveryState.WAITING:
            return
        left.discard(delivery.id)
        if not left:
            del self._left[delivery.run_id]


# Callbacks without an outbox: in memory, in order, by the same policy, for as long as we live.
#
# For a store that has no outbox, and for the application's own notifier, which no other process
# could call. Each run and target has a line of its own: one that waits for its next attempt holds
# back those behind it and nobody else. What is given up, and what is left when the process ends, is
# told to ``gave_up``, so that it can be recorded.


_log = logging.getLogger("tenure.runtime")

GaveUp = Callable[[Delivery], Awaitable[None]]
"""Hears of a delivery with its last error and the number of its attempts. May fail."""

_Key = tuple[str, str]
"""Run and target."""


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


# The application's own notifier, called like any other receiver.


class NotifierSender:
    """Whatever the notifier raises is logged in full and tried again. The record names the kind of
    error only: nobody knows what its words hold."""

    def __init__(self, notifier: RunStateNotifier) -> None:
        self._notifier = notifier

    async def send(self, delivery: Delivery) -> NotTaken | None:
        said = payload(delivery.event, delivery.workflow_name, delivery.run_status)
        try:
            await self._notifier.notify(said)
        except Exception as error:  # noqa: BLE001  an onlooker never changes the run
            _log.exception("the notifier failed on %s of run %s", said.type, said.run_id)
            return NotTaken(error=f"the notifier raised {type(error).__name__}", again=True)
        return None

    async def close(self) -> None:
        """The notifier is the application's."""


NOTIFIER = CallbackTarget(name="notifier", events=("run", "step", "host"))

_SOME_TIME = datetime.fromtimestamp(0, UTC)
"""For a store that does not say when it wrote."""
_A_MOMENT = 1.0
"""Seconds for a sender to say in its own words that its time was over."""
_MOST_NOTIFIERS = 1000
"""Runs with a notifier of their own, and calls of notifiers at once."""


class OnCommitted(Protocol):
    """Hears of an accepted write: the run as far as its writer knows it, what happened, and the
    callbacks that came into being with it."""

    def __call__(
        self,
        run: RunSnapshot,
        events: Sequence[Event],
        deliveries: Sequence[NewDelivery],
        receipt: Receipt,
    ) -> None: ...


class Callbacks:
    """``sender`` becomes ours to close."""

    def __init__(
        self,
        store: RunStateStore,
        sender: CallbackSender,
        settings: CallbackSettings,
        new_id: Callable[[], str],
        notifier: RunStateNotifier | None = None,
    ) -> None:
        self._sender = sender
        self._flush = settings.flush
        self._write = GroupCommit(store).write
        self._usual = None if notifier is None else NotifierSender(notifier)
        self._own: OrderedDict[str, NotifierSender] = OrderedDict()
        """Of runs that have one of their own, from their birth to their end."""
        self._owing = OwedCallbacks()
        self._sent_elsewhere = isinstance(store, Attended)
        self._relay: Relay | None = None
        if isinstance(store, Outbox):
            self._relay = Relay(
                store,
                sender,
                settings.policy,
                new_id=new_id,
                settled=self._owing.settled,
                timing=settings.timing,
            )
        self._posts = BestEffort(
            settings.policy, self._record_given_up, seconds=settings.timeout + _A_MOMENT
        )
        self._notices = BestEffort(
            settings.policy,
            self._record_given_up,
            seconds=settings.timeout,
            per_origin=_MOST_NOTIFIERS,
        )

    def open(self) -> None:
        if self._relay is not None:
            self._relay.open()

    async def close(self, *, at_once: bool = False) -> None:
        """Let each callback be tried once, and what is under way for others end, within ``flush``
        seconds in all; ``at_once``: wait for nothing."""
        seconds = 0.0 if at_once else self._flush
        try:
            await asyncio.gather(
                self._close_relay(seconds),
                self._posts.close(seconds),
                self._notices.close(seconds),
            )
        finally:
            await self._sender.close()

    def told_of(self, run: RunSnapshot, notifier: RunStateNotifier | None) -> OnCommitted | None:
        """For the one who writes this run all the time; ``None`` if there is nobody to tell.
        ``notifier`` takes the place of the usual one, whoever changes this run from here."""
        if notifier is None:
            return self.told if run.callbacks or self._usual is not None else None
        own = NotifierSender(notifier)

        def told(
            run: RunSnapshot,
            events: Sequence[Event],
            deliveries: Sequence[NewDelivery],
            receipt: Receipt,
        ) -> None:
            self._own[run.run_id] = own
            if len(self._own) > _MOST_NOTIFIERS:
                self._own.popitem(last=False)
            self.told(run, events, deliveries, receipt)

        return told

    def told(
        self,
        run: RunSnapshot,
        events: Sequence[Event],
        deliveries: Sequence[NewDelivery],
        receipt: Receipt,
    ) -> None:
        """For whoever writes now and then."""
        if deliveries and not self._sent_elsewhere:
            self._send(run, events, deliveries, receipt)
        notifier = self._own.get(run.run_id, self._usual)
        if notifier is not None:
            self._notify(notifier, run, events, receipt)
            if receipt.status in TERMINAL_RUN:
                self._own.pop(run.run_id, None)

    def wake(self) -> None:
        """Something waits in the outbox that nobody here was told of."""
        if self._relay is not None:
            self._relay.wake()

    async def notified(self, run_id: str, seconds: float) -> None:
        """Wait until the notifier was told all of this run, or failed, or ``seconds`` are over."""
        await self._notices.flush(seconds, (run_id, NOTIFIER.name))

    def _send(
        self,
        run: RunSnapshot,
        events: Sequence[Event],
        deliveries: Sequence[NewDelivery],
        receipt: Receipt,
    ) -> None:
        if self._relay is not None:
            self._owing.add(run.run_id, (each.id for each in deliveries))
            self._relay.wake()
            return
        targets = {target.name: target for target in run.callbacks}
        for each in deliveries:
            owed = _delivery(targets[each.target], run, events[each.seq], each.seq, receipt)
            self._posts.owe(owed, self._sender)

    def _notify(
        self, notifier: NotifierSender, run: RunSnapshot, events: Sequence[Event], receipt: Receipt
    ) -> None:
        for seq, event in enumerate(events):
            if event.status is not None:
                self._notices.owe(_delivery(NOTIFIER, run, event, seq, receipt), notifier)

    async def _close_relay(self, seconds: float) -> None:
        if self._relay is not None:
            await self._relay.close(seconds, self._owing.run_ids)

    async def _record_given_up(self, dead: Delivery) -> None:
        failure = CallbackFailure(
            target=dead.target.name,
            event=dead.event.type,
            error=dead.last_error or "",
            attempts=dead.attempts,
        )
        update = compose.callback_failed(dead.run_id, dead.event.version, dead.id, failure)
        while True:
            try:
                await until_answered(partial(self._write, update))
            except VersionConflict as conflict:
                update = replace(update, base_version=conflict.version)
            else:
                return


def _delivery(
    target: CallbackTarget, run: RunSnapshot, event: Event, seq: int, receipt: Receipt
) -> Delivery:
    """Its id follows from what it tells: should two writers believe that a change was theirs, the
    receiver sees that both tell the same."""
    at = receipt.updated_at or _SOME_TIME
    place = f"{run.run_id} {receipt.version}.{seq} {target.name}"
    return Delivery(
        id=uuid5(NAMESPACE_URL, place).hex,
        run_id=run.run_id,
        workflow_name=run.workflow_name,
        target=target,
        event=record(
            event, run_id=run.run_id, version=receipt.version, seq=seq, at=at, fence=receipt.fence
        ),
        run_status=receipt.status,
        due_at=at,
    )
