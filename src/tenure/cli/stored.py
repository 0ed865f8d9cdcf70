"""A run that is there, as commands need it that go on with it."""

from __future__ import annotations

from typing import NamedTuple

from tenure.cli.opening import meant_run, tending
from tenure.config import Settings
from tenure.ports.workers import WorkerRegistry
from tenure.runtime.stored import StoredRun, stored_run
from tenure.runtime.workforce import serving
from tenure.workflow_file import WorkflowFile, read_workflow


class Found(NamedTuple):
    stored: StoredRun
    file: WorkflowFile
    served: bool
    """Whether a worker waits for such runs."""


async def find(settings: Settings, word: str) -> Found:
    """As it stands once what dead processes left behind is marked. ``RunNotFound``; ``NotRunnable``
    if its store does not know what it executes."""
    async with tending(settings) as store:
        stored = await stored_run(store, await meant_run(store, word))
        workers = await store.list_workers() if isinstance(store, WorkerRegistry) else ()
    run, definition = stored
    file = read_workflow(definition.workflow, source=definition.source or "workflow")
    return Found(stored, file, bool(serving(run.queue, workers)))
