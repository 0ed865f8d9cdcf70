"""A run for whoever claims it: stored, with all that is needed to execute it, and left alone."""

from __future__ import annotations

from tenure.model.approving import waits_for_approval
from tenure.model.codec import copied
from tenure.model.compose import new_run
from tenure.model.errors import NotSupported, StoreUnavailable
from tenure.model.leasing import create
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.ports.definitions import Definitions
from tenure.ports.lease_store import LeaseStore
from tenure.ports.notifier import RunStateNotifier
from tenure.ports.run_store import RunStateStore
from tenure.runtime.patience import surely
from tenure.runtime.session import Session

USE_INSTEAD = "SQLite (sqlite:///runs.db) and PostgreSQL (postgresql://…) have what workers need"


def check_takeable(store: RunStateStore) -> None:
    """``NotSupported`` for a store from which no worker could ever take a run: it would wait for
    ever, and everybody would say that it waits for a worker."""
    if not isinstance(store, LeaseStore):
        raise not_takeable(type(store).__name__)
    if not isinstance(store, Definitions):
        raise not_takeable(type(store).__name__, "definitions of runs")


def not_takeable(kind: str, lacks: str = "leases") -> NotSupported:
    return NotSupported(
        f"{kind} keeps no {lacks}: no worker could ever take a run from it; {USE_INSTEAD}; "
        "tenure run (Runner.run) executes it here and now"
    )


def not_servable(kind: str) -> NotSupported:
    """Of a worker for such a store."""
    return NotSupported(f"workers need a store with leases, and {kind} has none: {USE_INSTEAD}")


def nobody_could_submit(store: str) -> NotSupported:
    """Of a worker for a store that no other process can see."""
    seen = f"{store} is seen by this process alone: nobody could submit a run to it"
    return NotSupported(f"{seen}; {USE_INSTEAD}; tenure run executes one here and now")


async def submit(
    session: Session,
    planned: RunSnapshot,
    definition: str,
    *,
    approval_seconds: float | None = None,
    notifier: RunStateNotifier | None = None,
    update_id: str | None = None,
    by: str | None = None,
) -> RunSnapshot:
    """The run as it was stored; where an answer was lost, as it is by now. ``approval_seconds`` is
    how long it may wait for approval, if it does. ``update_id`` names this very request: sent
    again, with the same ``run_id``, it finds the run that it made. ``by`` is who wants the run, for
    the journal."""
    new_id = session.identity.new_id
    creation = new_run(
        planned,
        update_id or new_id(),
        iter(new_id, ""),
        by=by,
        definition=definition,
        approval_seconds=approval_seconds or None,
    )
    doubtful = False

    def note(_: StoreUnavailable) -> None:
        nonlocal doubtful
        doubtful = True

    receipt = await surely(lambda: session.combiner.write(creation), failed=note)
    told = session.callbacks and session.callbacks.told_of(planned, notifier)
    if told:
        told(planned, creation.events, creation.deliveries, receipt)
    await hint_at(session, planned)
    if doubtful or receipt.updated_at is None:
        return await surely(lambda: session.store.get_run(planned.run_id))
    return copied(create(creation, receipt.updated_at))


async def hint_at(session: Session, run: RunSnapshot) -> None:
    """If a worker could claim it now; when its time comes, or somebody approves it, is told by the
    store and by who approves."""
    if session.hinting is None or run.status is not RunStatus.QUEUED:
        return
    waits = waits_for_approval(run) and run.approval.by is None
    if not waits and (run.run_after is None or run.run_after <= session.identity.now()):
        await session.hinting.hint(run.queue, run.run_id)
