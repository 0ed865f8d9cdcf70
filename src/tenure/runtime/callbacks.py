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
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Protocol
from uuid import NAMESPACE_URL, uuid5

from msgspec.structs import replace

from tenure.model import compose
from tenure.model.errors import VersionConflict
from tenure.model.events import Event, record
from tenure.model.outbox import Delivery
from tenure.model.snapshot import CallbackTarget, RunSnapshot
from tenure.model.status import TERMINAL_RUN
from tenure.model.update import CallbackFailure, NewDelivery, Receipt
from tenure.ports.attended import Attended
from tenure.ports.notifier import RunStateNotifier
from tenure.ports.outbox import Outbox
from tenure.ports.run_store import RunStateStore
from tenure.ports.sender import CallbackSender
from tenure.runtime.best_effort import BestEffort
from tenure.runtime.callback_settings import CallbackSettings
from tenure.runtime.combiner import Combiner
from tenure.runtime.notifier_sender import NotifierSender
from tenure.runtime.owing import Owing
from tenure.runtime.patience import surely
from tenure.runtime.relay import Relay

NOTIFIER = CallbackTarget(name="notifier", events=("run", "step", "host"))

_SOME_TIME = datetime.fromtimestamp(0, UTC)
"""For a store that does not say when it wrote."""
_A_MOMENT = 1.0
"""Seconds for a sender to say in its own words that its time was over."""
_MOST_NOTIFIERS = 1000
"""Runs with a notifier of their own, and calls of notifiers at once."""


class Told(Protocol):
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
        self._write = Combiner(store).write
        self._usual = None if notifier is None else NotifierSender(notifier)
        self._own: OrderedDict[str, NotifierSender] = OrderedDict()
        """Of runs that have one of their own, from their birth to their end."""
        self._owing = Owing()
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

    def told_of(self, run: RunSnapshot, notifier: RunStateNotifier | None) -> Told | None:
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
                await surely(partial(self._write, update))
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
