"""Those who write what is looked at."""

from __future__ import annotations

from typing import Any

from tenure.model.snapshot import RunSnapshot
from tenure.model.update import Effect, Event, Update
from tenure.testing.contracts.acts import write
from tenure.testing.factories import fencing_of, unique


async def says(store: Any, run: RunSnapshot, text: str) -> RunSnapshot:
    """An event of any size, which changes nothing else."""
    effect = Effect(events=(Event(type="run.note", data={"text": text}),))
    update = Update(
        run_id=run.run_id,
        update_id=unique("update"),
        base_version=run.version,
        lease=fencing_of(run),
        effect=effect,
    )
    return await write(store, update)
