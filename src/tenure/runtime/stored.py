"""A run that is there already, with what it executes: for whoever goes on with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tenure.model.errors import NotRunnable
from tenure.model.snapshot import RunSnapshot
from tenure.ports.definitions import Definitions
from tenure.ports.run_store import RunStateStore
from tenure.runtime.birth import secret_values
from tenure.runtime.definition import Definition, decode_definition
from tenure.runtime.embedded import Work
from tenure.runtime.patience import surely
from tenure.runtime.ready import Ready, check_complete


class StoredRun(NamedTuple):
    snapshot: RunSnapshot
    definition: Definition


async def stored_run(store: RunStateStore, run_id: str) -> StoredRun:
    """``RunNotFound``; ``NotRunnable`` if its store does not know what it executes."""
    run = await surely(lambda: store.get_run(run_id))
    text = None
    if isinstance(store, Definitions):
        text = await surely(lambda: store.get_definition(run_id))
    if text is None:
        raise NotRunnable(run_id, "its store keeps no definition of it: start a new run")
    return StoredRun(run, decode_definition(text))


def stored_work(
    ready: Ready, planned: RunSnapshot, secrets: Mapping[str, str], *, by_worker: bool = False
) -> Work:
    """For a run executed as it was stored. ``InvalidWorkflow`` if a secret is missing."""
    check_complete(ready, planned.vars.keys(), secrets.keys(), by_worker=by_worker)
    variables = {**planned.vars, **secrets}
    return Work(
        prepared=ready.prepared,
        planned=planned,
        variables=variables,
        secrets=secret_values(variables, ready.source.workflow, secrets),
        files=ready.definition.files,
        by_worker=by_worker,
    )
