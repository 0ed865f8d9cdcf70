"""Ending a run as its owner, in one update that also gives it up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from tenure.model.compose import effect_of
from tenure.model.errors import Refused, VersionConflict
from tenure.model.retry import RetryPolicy
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import Changes, Fencing, RunChange, Update
from tenure.ports.run_store import RunStateStore
from tenure.runtime.callbacks import Told
from tenure.runtime.patience import PATIENCE, surely


async def end_run(
    store: RunStateStore,
    new_id: Callable[[], str],
    told: Told | None,
    run: RunSnapshot,
    fencing: Fencing,
    change: RunChange,
    patience: RetryPolicy = PATIENCE,
) -> bool:
    """False if somebody else was faster."""
    update = Update(
        run_id=run.run_id,
        update_id=new_id(),
        base_version=run.version,
        lease=fencing,
        effect=effect_of(run, Changes(run=change), iter(new_id, "")),
        release=True,
    )
    while True:
        try:
            receipt = await surely(partial(store.update_run, update), patience)
        except VersionConflict as conflict:  # an annotation, say: the end stands all the same
            update = replace(update, base_version=conflict.version)
        except Refused:
            return False
        else:
            if told is not None:
                told(run, update.effect.events, update.effect.deliveries, receipt)
            return True
