"""What people and programs may ask of a run from outside: approve it, cancel it, note something,
send its callbacks again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from msgspec.structs import replace

from tenure.aio import until_answered
from tenure.model import compose
from tenure.model.decide import is_overdue
from tenure.model.errors import InvalidTransition, VersionConflict
from tenure.model.outbox import Delivery
from tenure.model.snapshot import Annotation, RunSnapshot, RunSummary
from tenure.model.status import DeliveryState, RunStatus
from tenure.model.update import Receipt, Update
from tenure.ports.callbacks import Outbox
from tenure.ports.store import RunStateStore
from tenure.runtime.callbacks import OnCommitted
from tenure.system import SystemClock

if TYPE_CHECKING:
    from tenure.runtime.options import RunOptions
    from tenure.runtime.recipe import Definition
    from tenure.runtime.recovery import EndedRuns
    from tenure.runtime.retry import RetryOptions


@runtime_checkable
class RemoteOperations(RunStateStore, Protocol):
    """Of a store behind another process, which makes operators' changes itself and knows in whose
    name: it is asked for them by verb, and nothing is written past it. ``request_id`` names a
    request: sent again, it finds what the first one did."""

    async def submit_run(
        self, definition: Definition, options: RunOptions, request_id: str
    ) -> RunSnapshot: ...

    async def retry_run(
        self, run_id: str, options: RetryOptions, request_id: str
    ) -> RunSnapshot: ...

    async def cancel_run(self, run_id: str, reason: str | None) -> RunSnapshot: ...

    async def approve_run(self, run_id: str, note: str | None) -> RunSnapshot: ...

    async def annotate_run(
        self, run_id: str, data: dict[str, Any], request_id: str
    ) -> RunSnapshot: ...

    async def end_abandoned_runs(self, reason: str) -> EndedRuns: ...


# Saying yes to a run that asks for it, and ending one to which nobody did in time.


class Approvals:
    """The store judges by its own clock; ours (``now``) only keeps us from asking all the time."""

    def __init__(
        self,
        store: RunStateStore,
        new_id: Callable[[], str],
        told: OnCommitted | None = None,
        now: Callable[[], datetime] = SystemClock().now,
    ) -> None:
        self._store = store
        self._new_id = new_id
        self._told = told
        self._now = now
        self._ids: Iterator[str] = iter(new_id, "")

    async def approve(self, run_id: str, by: str, note: str | None = None) -> None:
        """``RunNotFound``; ``InvalidTransition`` for a run that ended, does not ask, or waited for
        too long: that one is ended as well."""
        yes = compose.approve(run_id, self._new_id(), by, note)
        try:
            await until_answered(lambda: self._store.update_run(yes))
        except InvalidTransition as error:
            run = await until_answered(lambda: self._store.get_run(run_id))
            if run.approval.expires_at is not None:
                await self._expire(run)
            if run.ended and run.message is not None:
                why = f"ended as {run.status} ({run.message}); only annotations may follow"
                raise InvalidTransition(run_id, why) from error
            raise

    async def expire_if_overdue(self, run: RunSummary) -> bool:
        """Whether that ended it."""
        if not is_overdue(run, self._now()):
            return False
        return await self._expire(await until_answered(lambda: self._store.get_run(run.run_id)))

    async def _expire(self, run: RunSnapshot) -> bool:
        update = compose.expire(run, self._new_id(), self._ids)
        try:
            receipt = await until_answered(lambda: self._store.update_run(update))
        except (InvalidTransition, VersionConflict):
            return False  # approved, annotated, ended, or by the store's clock still in time
        if run.ended:
            return False
        if self._told is not None:
            self._told(run, update.effect.events, update.effect.deliveries, receipt)
        return True


class Operators:
    """Writes without owning: each verb is one update that commutes with the owner's work."""

    def __init__(
        self, store: RunStateStore, new_id: Callable[[], str], told: OnCommitted | None = None
    ) -> None:
        self._store = store
        self._new_id = new_id
        self._told = told
        self._ids: Iterator[str] = iter(new_id, "")
        self._approvals = Approvals(store, new_id, told)

    async def approve(self, run_id: str, *, by: str, note: str | None = None) -> RunSnapshot:
        """The run as it then stands; if somebody approved it before, that stands."""
        remote = self._store
        if isinstance(remote, RemoteOperations):
            return await until_answered(lambda: remote.approve_run(run_id, note))
        await self._approvals.approve(run_id, by, note)
        return await self._read(run_id)

    async def cancel(
        self, run_id: str, *, reason: str | None = None, by: str | None = None
    ) -> RunSnapshot:
        """The run as it then stands: ``canceled`` if nobody was running it; ``running`` with
        ``cancel_requested_at`` if its owner was asked; its own end if it had ended before."""
        remote = self._store
        if isinstance(remote, RemoteOperations):
            return await until_answered(lambda: remote.cancel_run(run_id, reason))
        run = await self._read(run_id)
        if not run.ended:
            update = compose.cancel(run, self._new_id(), self._ids, reason=reason, by=by)
            with suppress(InvalidTransition):  # it ended in this very moment: that stands
                receipt = await until_answered(lambda: self._store.update_run(update))
                self._tell_if_ended(run, update, receipt)
            run = await self._read(run_id)
        return run

    async def annotate(
        self,
        run_id: str,
        data: dict[str, Any],
        *,
        by: str | None = None,
        update_id: str | None = None,
    ) -> RunSnapshot:
        """Allowed on ended runs too; never touches status. ``update_id`` names this request: sent
        again, nothing is noted twice."""
        remote, name = self._store, update_id or self._new_id()
        if isinstance(remote, RemoteOperations):
            return await until_answered(lambda: remote.annotate_run(run_id, data, name))
        note = compose.annotate(run_id, Annotation(id=name, data=data, by=by))
        await until_answered(lambda: self._store.update_run(note))
        return await self._read(run_id)

    async def redeliver(
        self, outbox: Outbox, delivery_id: str, *, by: str | None = None
    ) -> Delivery:
        """Send a callback again that was settled. The journal says so first: what happened without
        a word could not be told from what never happened."""
        known = await until_answered(lambda: outbox.get_delivery(delivery_id))
        if known.state is not DeliveryState.WAITING:
            await self._tell_of(known, by)
        return await until_answered(lambda: outbox.requeue_delivery(delivery_id))

    async def _tell_of(self, again: Delivery, by: str | None) -> None:
        run = await self._read(again.run_id)
        target, event = again.target.name, again.event.type
        said = compose.redelivered(
            run.run_id, run.version, self._new_id(), by, id=again.id, target=target, event=event
        )
        while True:
            try:
                await until_answered(partial(self._store.update_run, said))
            except VersionConflict as conflict:
                said = replace(said, base_version=conflict.version)
            else:
                return

    def _tell_if_ended(self, run: RunSnapshot, update: Update, receipt: Receipt) -> None:
        """Ended from outside: that raises the fence. If its owner did, its owner tells."""
        ended = update.if_unowned
        if self._told is None or ended is None or receipt.status is not RunStatus.CANCELED:
            return
        if receipt.fence > run.fence:
            self._told(run, ended.events, ended.deliveries, receipt)

    async def _read(self, run_id: str) -> RunSnapshot:
        return await until_answered(lambda: self._store.get_run(run_id))
