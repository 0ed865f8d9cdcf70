"""Sending the callbacks of one process and store.

Every writer of a run (owner, reconciler, operator) reports its committed writes here. The callbacks
created by a write are then

- in the outbox, if the store has one: the relay is woken, and a crash loses nothing;
- sent by the process behind the store (``Attended``), and nothing is to be done here;
- else only in this process's memory: sent from there, in order, by the same policy. A callback that
  is given up, or left when the process ends, becomes the run's ``callback_error`` and an event; if
  the process is killed it is lost without a trace.

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
from tenure.model.retry_policy import RetryPolicy
from tenure.model.snapshot import CallbackTarget, RunSnapshot
from tenure.model.status import TERMINAL_RUN, DeliveryState
from tenure.model.update import CallbackFailure, Event, NewDelivery, Receipt, record
from tenure.ports.callbacks import CallbackSender, NotTaken, Outbox, RunStateNotifier
from tenure.ports.store import Attended, RunStateStore
from tenure.runtime.callback_attempts import attempt, note_given_up, outcome_of
from tenure.runtime.group_commit import GroupCommit
from tenure.runtime.options import CallbackSettings
from tenure.runtime.relay import Relay
from tenure.wire.callbacks import payload

_MAX_RUNS = 1000


class OwedCallbacks:
    """The callbacks that this process put into the outbox and its own relay has not settled. Those
    settled by another relay stay listed: only the store knows of them.

    Bounded: the run that was written to least recently is forgotten first.
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
        if len(self._left) > _MAX_RUNS:
            self._left.popitem(last=False)

    def settled(self, delivery: Delivery) -> None:
        """A callback that waits for a retry is still owed. It may be another process's."""
        left = self._left.get(delivery.run_id)
        if left is None or delivery.state is DeliveryState.WAITING:
            return
        left.discard(delivery.id)
        if not left:
            del self._left[delivery.run_id]


_log = logging.getLogger("tenure.runtime")

GaveUp = Callable[[Delivery], Awaitable[None]]
"""Called with a delivery, its last error and the number of its attempts. May raise."""

_RunTarget = tuple[str, str]
"""Run and target."""


class _Queue:
    """The callbacks of one run to one target, the next one first."""

    __slots__ = ("_moved", "deliveries", "recording")

    def __init__(self) -> None:
        self.deliveries: deque[Delivery] = deque()
        self.recording = False
        """Whether the first was given up, and this is being recorded."""
        self._moved = asyncio.Event()

    @property
    def untried(self) -> bool:
        """Whether the first has not been tried yet, or its failure is being recorded."""
        return bool(self.deliveries) and (self.deliveries[0].attempts == 0 or self.recording)

    def notify_moved(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    async def moves(self) -> None:
        await self._moved.wait()


class BestEffort:
    """Callbacks without an outbox: sent from memory, in order, while the process lives.

    Each run and target has a queue: a callback that waits for its next attempt delays only those
    behind it. ``gave_up`` is called with each one that is given up, and with those left at the end.

    ``seconds`` for an attempt, ``per_origin`` concurrent attempts to one receiver. At most
    ``max_queued`` are kept per run and target, and ``max_total`` in all: further ones are given up
    at once.
    """

    def __init__(
        self,
        policy: RetryPolicy,
        gave_up: GaveUp,
        *,
        seconds: float = 15.0,
        per_origin: int = 10,
        max_queued: int = 1000,
        max_total: int = 100_000,
    ) -> None:
        self._policy = policy
        self._gave_up = gave_up
        self._seconds = seconds
        self._per_origin = per_origin
        self._max_queued = max_queued
        self._max_total = max_total
        self._kept = 0
        self._queues: dict[_RunTarget, _Queue] = {}
        self._slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """By origin, while there is anything to send there."""
        self._tasks: set[asyncio.Task[None]] = set()

    def owe(self, delivery: Delivery, sender: CallbackSender) -> None:
        """Queue a delivery. Calls for one run and target come in order, with the same sender."""
        key = (delivery.run_id, delivery.target.name)
        queue = self._queues.get(key)
        too_many = self._too_many(queue)
        if too_many is not None:
            self._begin(self._give_up(delivery, too_many))
            return
        self._kept += 1
        if queue is not None:
            queue.deliveries.append(delivery)
            return
        queue = self._queues[key] = _Queue()
        queue.deliveries.append(delivery)
        self._begin(self._deliver_queue(key, queue, sender))

    async def flush(self, seconds: float, of: _RunTarget | None = None) -> bool:
        """Wait at most ``seconds`` until each was tried once or waits behind one that failed;
        whether this was reached. ``of``: one run and target only."""
        queue = self._untried(of)
        if queue is None:
            return True
        try:
            async with asyncio.timeout(seconds):
                while queue is not None:
                    await queue.moves()
                    queue = self._untried(of)
        except TimeoutError:
            return False
        return True

    async def close(self, seconds: float) -> None:
        """Wait ``seconds`` for what was never tried, then briefly to record what is lost."""
        try:
            await self.flush(seconds)
        finally:
            await self._stop()
            await self._record_lost()

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_GRACE_S)  # one may not listen

    async def _record_lost(self) -> None:
        lost = [queue.deliveries for queue in self._queues.values() if queue.deliveries]
        self._queues = {}
        if not lost:
            return
        _log.warning(
            "%d callbacks are lost: this process ends, and they were in its memory only",
            sum(map(len, lost)),
        )
        records = [asyncio.create_task(self._give_up(*_lost_error(queue))) for queue in lost]
        try:
            await asyncio.wait(records, timeout=_GRACE_S)
        finally:
            for record_task in records:
                record_task.cancel()

    def _too_many(self, queue: _Queue | None) -> str | None:
        if queue is not None and len(queue.deliveries) >= self._max_queued:
            return f"{len(queue.deliveries)} callbacks of this run wait for their target already"
        if self._kept >= self._max_total:
            return f"{self._kept} callbacks wait in memory already"
        return None

    def _untried(self, of: _RunTarget | None) -> _Queue | None:
        queues = self._queues
        if of is not None:
            queue = queues.get(of)
            return queue if queue is not None and queue.untried else None
        return next((queue for queue in queues.values() if queue.untried), None)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver_queue(self, key: _RunTarget, queue: _Queue, sender: CallbackSender) -> None:
        slots = self._slots_of(origin_of(queue.deliveries[0].target))
        while queue.deliveries:
            async with slots:
                outcome = await self._try(queue.deliveries[0], sender)
            await self._settle(queue, outcome)
            queue.notify_moved()
            if isinstance(outcome, RetryLater):
                await pause(outcome.delay)
        self._queues.pop(key, None)

    async def _try(self, delivery: Delivery, sender: CallbackSender) -> Outcome:
        end_by = asyncio.get_running_loop().time() + self._seconds
        answer = await attempt(sender, delivery, end_by)
        luck = random.random()  # noqa: S311
        return outcome_of(answer, delivery, self._policy, luck)

    async def _settle(self, queue: _Queue, outcome: Outcome) -> None:
        tried = replace(queue.deliveries[0], attempts=queue.deliveries[0].attempts + 1)
        match outcome:
            case RetryLater(_, error):
                queue.deliveries[0] = replace(tried, last_error=error)
                return
            case GiveUp(error):
                queue.recording = True
                await self._give_up(tried, error)
                queue.recording = False
        queue.deliveries.popleft()
        self._kept -= 1

    def _slots_of(self, origin: str) -> asyncio.Semaphore:
        slots = self._slots.get(origin)
        if slots is None:
            slots = self._slots[origin] = asyncio.Semaphore(self._per_origin)
        return slots

    async def _give_up(self, delivery: Delivery, error: str) -> None:
        note_given_up(delivery, error)
        try:
            await self._gave_up(replace(delivery, last_error=error))
        except Exception:  # noqa: BLE001  the log has it; the next callback must go out
            _log.exception("cannot record that callback %s was given up", delivery.id)


def _lost_error(queue: deque[Delivery]) -> tuple[Delivery, str]:
    """The first delivery of a queue, with an error that counts the others."""
    first = queue[0]
    error = "the process ended before it was delivered"
    if len(queue) > 1:
        error = f"{error}, with {len(queue) - 1} more behind it"
    return first, f"{first.last_error}; {error}" if first.last_error else error


class NotifierSender:
    """Calls the application's notifier like any receiver. What it raises is logged in full and
    tried again; the record names only the class of the error: its text may hold secrets."""

    def __init__(self, notifier: RunStateNotifier) -> None:
        self._notifier = notifier

    async def send(self, delivery: Delivery) -> NotTaken | None:
        event = payload(delivery.event, delivery.workflow_name, delivery.run_status)
        try:
            await self._notifier.notify(event)
        except Exception as error:  # noqa: BLE001  a notifier never changes the run
            _log.exception("the notifier failed on %s of run %s", event.type, event.run_id)
            return NotTaken(error=f"the notifier raised {type(error).__name__}", again=True)
        return None

    async def close(self) -> None:
        """The notifier is the application's."""


NOTIFIER = CallbackTarget(name="notifier", events=("run", "step", "host"))

_UNKNOWN_TIME = datetime.fromtimestamp(0, UTC)
"""For a store that does not return the time of its writes."""
_GRACE_S = 1.0
"""For a sender to report its own time-out, and for what is recorded at the end."""
_MAX_NOTIFIERS = 1000
"""Runs with a notifier of their own, and concurrent calls of notifiers."""


class OnCommitted(Protocol):
    """Called after a committed write with the run as its writer knows it, the events, and the
    callbacks created by the write."""

    def __call__(
        self,
        run: RunSnapshot,
        events: Sequence[Event],
        deliveries: Sequence[NewDelivery],
        receipt: Receipt,
    ) -> None: ...


class Callbacks:
    """Routes callbacks to the relay, to memory and to notifiers; closes ``sender`` in the end."""

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
        self._default_notifier = None if notifier is None else NotifierSender(notifier)
        self._run_notifiers: OrderedDict[str, NotifierSender] = OrderedDict()
        """By run id, until the run ends; the oldest are dropped beyond ``_MAX_NOTIFIERS``."""
        self._owed = OwedCallbacks()
        self._sent_elsewhere = isinstance(store, Attended)
        self._relay: Relay | None = None
        if isinstance(store, Outbox):
            self._relay = Relay(
                store,
                sender,
                settings.policy,
                new_id=new_id,
                settled=self._owed.settled,
                timing=settings.timing,
            )
        self._memory_posts = BestEffort(
            settings.policy, self._record_given_up, seconds=settings.timeout + _GRACE_S
        )
        self._notices = BestEffort(
            settings.policy,
            self._record_given_up,
            seconds=settings.timeout,
            per_origin=_MAX_NOTIFIERS,
        )

    def open(self) -> None:
        if self._relay is not None:
            self._relay.open()

    async def close(self, *, at_once: bool = False) -> None:
        """Let each callback be tried once, and attempts for other processes end, within ``flush``
        seconds in all; ``at_once``: without waiting."""
        seconds = 0.0 if at_once else self._flush
        try:
            await asyncio.gather(
                self._close_relay(seconds),
                self._memory_posts.close(seconds),
                self._notices.close(seconds),
            )
        finally:
            await self._sender.close()

    def listener_for(
        self, run: RunSnapshot, notifier: RunStateNotifier | None
    ) -> OnCommitted | None:
        """For the run's tracker; ``None`` if no callback or notifier wants its events.
        ``notifier`` replaces the default one for every writer of this run in this process."""
        if notifier is None:
            return self.told if run.callbacks or self._default_notifier is not None else None
        own = NotifierSender(notifier)

        def committed(
            run: RunSnapshot,
            events: Sequence[Event],
            deliveries: Sequence[NewDelivery],
            receipt: Receipt,
        ) -> None:
            self._run_notifiers[run.run_id] = own
            if len(self._run_notifiers) > _MAX_NOTIFIERS:
                self._run_notifiers.popitem(last=False)
            self.told(run, events, deliveries, receipt)

        return committed

    def told(
        self,
        run: RunSnapshot,
        events: Sequence[Event],
        deliveries: Sequence[NewDelivery],
        receipt: Receipt,
    ) -> None:
        """For operators and reconcilers, which write to a run once."""
        if deliveries and not self._sent_elsewhere:
            self._send(run, events, deliveries, receipt)
        notifier = self._run_notifiers.get(run.run_id, self._default_notifier)
        if notifier is not None:
            self._notify(notifier, run, events, receipt)
            if receipt.status in TERMINAL_RUN:
                self._run_notifiers.pop(run.run_id, None)

    def wake(self) -> None:
        """Another process has put something into the outbox."""
        if self._relay is not None:
            self._relay.wake()

    async def notified(self, run_id: str, seconds: float) -> None:
        """Wait at most ``seconds`` until the notifier got all events of this run or failed."""
        await self._notices.flush(seconds, (run_id, NOTIFIER.name))

    def _send(
        self,
        run: RunSnapshot,
        events: Sequence[Event],
        deliveries: Sequence[NewDelivery],
        receipt: Receipt,
    ) -> None:
        if self._relay is not None:
            self._owed.add(run.run_id, (each.id for each in deliveries))
            self._relay.wake()
            return
        targets = {target.name: target for target in run.callbacks}
        for each in deliveries:
            owed = _delivery(targets[each.target], run, events[each.seq], each.seq, receipt)
            self._memory_posts.owe(owed, self._sender)

    def _notify(
        self, notifier: NotifierSender, run: RunSnapshot, events: Sequence[Event], receipt: Receipt
    ) -> None:
        for seq, event in enumerate(events):
            if event.status is not None:
                self._notices.owe(_delivery(NOTIFIER, run, event, seq, receipt), notifier)

    async def _close_relay(self, seconds: float) -> None:
        if self._relay is not None:
            await self._relay.close(seconds, self._owed.run_ids)

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
    """Its id is derived from the event: if two writers believe that a change was theirs, the
    receiver recognises the second callback as a duplicate."""
    at = receipt.updated_at or _UNKNOWN_TIME
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
