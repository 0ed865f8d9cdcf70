"""A run for whoever claims it: stored, with all that is needed to execute it, and left alone."""

from __future__ import annotations

from tenure.model.compose import new_run
from tenure.model.snapshot import RunSnapshot
from tenure.ports.notifier import RunStateNotifier
from tenure.runtime.patience import surely
from tenure.runtime.session import Session


async def submit(
    session: Session,
    planned: RunSnapshot,
    definition: str,
    *,
    approval_seconds: float | None = None,
    notifier: RunStateNotifier | None = None,
) -> RunSnapshot:
    """The run as stored. ``approval_seconds`` is how long it may wait for approval, if it does."""
    new_id = session.identity.new_id
    creation = new_run(
        planned,
        new_id(),
        iter(new_id, ""),
        definition=definition,
        approval_seconds=approval_seconds or None,
    )
    receipt = await surely(lambda: session.combiner.write(creation))
    told = session.callbacks and session.callbacks.told_of(planned, notifier)
    if told:
        told(planned, creation.events, creation.deliveries, receipt)
    return await surely(lambda: session.store.get_run(planned.run_id))
