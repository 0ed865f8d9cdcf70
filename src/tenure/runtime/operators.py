"""Operators' verbs on runs they do not own: approve, cancel, annotate, redeliver callbacks; and
the expiry of approvals."""

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
    from tenure.runtime.reconciler import EndedRuns
    from tenure.runtime.retry import RetryOptions


@runtime_checkable
class RemoteOperations(RunStateStore, Protocol):
    """A store behind another process, which makes operators' changes itself and knows in which
    name: they are requested by verb, and nothing is written around it. ``request_id`` identifies
    a request: a repetition finds what the first one did."""

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


class Approvals:
    """Approves runs, and ends those not approved in time. The store decides by its own clock; the
    local one (``now``) only avoids needless calls."""

    def __init__(
        self,
        store: RunStateStore,
        new_id: Callable[[], str],
        told: OnCommitted | None = None,
        now: Callable[[], datetime] = SystemClock().now,
    ) -> None:
        self._store = store
        self._new_id = new_id
        self._on_committed = told
        self._now = now
        self._ids: Iterator[str] = iter(new_id, "")

    async def approve(self, run_id: str, by: str, note: str | None = None) -> None:
        """Raises ``RunNotFound``; ``InvalidTransition`` for a run that has ended, needs no approval
        or waited for too long, which is ended then."""
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
        """End the run if its time for approval is over; whether it was ended."""
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
        if self._on_committed is not None:
            self._on_committed(run, update.effect.events, update.effect.deliveries, receipt)
        return True


class Operators:
    """Writes to runs without owning them: each verb is one update that commutes with the owner's
    writes."""

    def __init__(
        self, store: RunStateStore, new_id: Callable[[], str], told: OnCommitted | None = None
    ) -> None:
        self._store = store
        self._new_id = new_id
        self._on_committed = told
        self._ids: Iterator[str] = iter(new_id, "")
        self._approvals = Approvals(store, new_id, told)

    async def approve(self, run_id: str, *, by: str, note: str | None = None) -> RunSnapshot:
        """The run after it; an earlier approval stands."""
        remote = self._store
        if isinstance(remote, RemoteOperations):
            return await until_answered(lambda: remote.approve_run(run_id, note))
        await self._approvals.approve(run_id, by, note)
        return await self._read(run_id)

    async def cancel(
        self, run_id: str, *, reason: str | None = None, by: str | None = None
    ) -> RunSnapshot:
        """The run after it: ``canceled`` if it had no owner; ``running`` with
        ``cancel_requested_at`` if its owner has to cancel it; unchanged if it had ended."""
        remote = self._store
        if isinstance(remote, RemoteOperations):
            return await until_answered(lambda: remote.cancel_run(run_id, reason))
        run = await self._read(run_id)
        if not run.ended:
            update = compose.cancel(run, self._new_id(), self._ids, reason=reason, by=by)
            with suppress(InvalidTransition):  # it ended meanwhile: that end stands
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
        """Send a settled callback again. It is written to the journal first, so that no second
        callback is sent without a trace."""
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
        """Report a run ended here, which raises the fence; a run ended by its owner is reported by
        its owner."""
        ended = update.if_unowned
        if self._on_committed is None or ended is None or receipt.status is not RunStatus.CANCELED:
            return
        if receipt.fence > run.fence:
            self._on_committed(run, ended.events, ended.deliveries, receipt)

    async def _read(self, run_id: str) -> RunSnapshot:
        return await until_answered(lambda: self._store.get_run(run_id))
