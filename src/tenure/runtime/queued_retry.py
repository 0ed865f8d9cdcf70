"""A retry that workers execute: past the door of its relatives first, then in the queue."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.model.approving import waits_for_approval
from tenure.model.compose import new_run
from tenure.model.errors import LeaseLost, NotRunnable, RunExists, RunNotFound, VersionConflict
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.model.status import RunStatus
from tenure.model.update import Fencing, LeaseRequest, Receipt, RunChange, Update
from tenure.ports.lease_store import LeaseStore
from tenure.ports.run_store import RunStateStore
from tenure.runtime.ending import end_run
from tenure.runtime.patience import surely
from tenure.runtime.relatives import Relatives, gave_way, has_given_way
from tenure.runtime.session import Session
from tenure.runtime.submit import hint_at

_AT_THE_DOOR = 30.0
"""Seconds for which nobody else may have it; if we die meanwhile, it is theirs."""


async def entered_before(
    store: RunStateStore, old_id: str, run_id: str, update_id: str
) -> RunSnapshot | None:
    """What became of the same request when it came first: the run it made, as it is by now, or
    ``NotRunnable`` as it was told; ``RunExists`` if another one made that run."""
    question = Update(run_id=run_id, update_id=update_id, base_version=0)  # no run is at version 0
    try:
        await surely(lambda: store.update_run(question))
    except RunNotFound:
        return None
    except VersionConflict:
        raise RunExists(run_id) from None
    run = await surely(lambda: store.get_run(run_id))
    if has_given_way(run):
        raise NotRunnable(old_id, f"{run_id} was {run.message}")
    return run


async def enter_queue(
    session: Session,
    planned: RunSnapshot,
    definition: str,
    relatives: Relatives,
    *,
    approval_seconds: float | None = None,
    update_id: str | None = None,
    by: str | None = None,
) -> RunSnapshot:
    """The run as stored. ``NotRunnable`` if another retry goes first: then this one has ended.

    ``update_id`` names this very request: of two at once one makes the run, and both find it.
    """
    new_id = update_id or session.identity.new_id()
    try:
        return await _enter(session, planned, definition, relatives, approval_seconds, new_id, by)
    except LeaseLost:
        made = await entered_before(session.store, relatives.of, planned.run_id, new_id)
        if made is None:
            raise
        return made


async def _enter(
    session: Session,
    planned: RunSnapshot,
    definition: str,
    relatives: Relatives,
    approval_seconds: float | None,
    update_id: str,
    by: str | None,
) -> RunSnapshot:
    """It is born owned, so that no worker begins it before we have seen that it may enter.
    ``LeaseLost`` if the same request was let in from somewhere else."""
    identity, store = session.identity, session.store
    lease = LeaseRequest(
        owner_id=identity.owner_id, seconds=_AT_THE_DOOR, claim_id=identity.new_id(), expired=False
    )
    creation = new_run(
        planned,
        update_id,
        iter(identity.new_id, ""),
        by=by,
        definition=definition,
        lease=None if _waits(planned) else lease,
        approval_seconds=approval_seconds or None,
    )
    receipt = await surely(lambda: session.combiner.write(creation))
    if session.callbacks is not None:
        session.callbacks.told(planned, creation.events, creation.deliveries, receipt)
    first = await relatives.in_front_of(planned.run_id)
    if first is not None:
        await _give_way(session, planned, receipt, first)
        raise relatives.refusal(first)
    if creation.lease is not None and isinstance(store, LeaseStore):
        fencing, release = Fencing(identity.owner_id, receipt.fence), identity.new_id()
        await surely(lambda: store.release_lease(planned.run_id, fencing, release))
    await hint_at(session, planned)
    return await surely(lambda: store.get_run(planned.run_id))


def _waits(planned: RunSnapshot) -> bool:
    """Then no worker can have it anyway."""
    return waits_for_approval(planned) and planned.approval.by is None


async def _give_way(
    session: Session, planned: RunSnapshot, receipt: Receipt, first: RunSummary
) -> None:
    """Under our own lease, where there is one: nobody can begin it meanwhile."""
    if _waits(planned):
        await session.operators.cancel(planned.run_id, reason=gave_way(first))
        return
    run = replace(planned, version=receipt.version, fence=receipt.fence)
    fencing = Fencing(session.identity.owner_id, receipt.fence)
    change = RunChange(status=RunStatus.CANCELED, message=gave_way(first))
    told = None if session.callbacks is None else session.callbacks.told
    await end_run(session.store, session.identity.new_id, told, run, fencing, change)
