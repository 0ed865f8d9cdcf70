"""Runs that will not move until somebody does something, and what that is."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence

from tenure.cli.display.text import counted
from tenure.model.query import RunFilter
from tenure.model.status import Recovery
from tenure.ports.census import CensusTaking
from tenure.ports.liveness import Presence
from tenure.ports.run_store import RunStateStore
from tenure.ports.workers import WorkerInfo
from tenure.runtime.owners import HELD, UNFINISHED, all_runs, doubt_about, owned_runs, unattended
from tenure.runtime.workforce import serving


async def stuck_runs(
    store: RunStateStore,
    workers: Sequence[WorkerInfo] | None,
    presence: Callable[[str], Presence],
) -> AsyncIterator[str]:
    """A finding each. ``workers`` are those that are there; ``None`` if nobody can tell."""
    lost = unattended(await owned_runs(store, RunFilter(statuses=UNFINISHED)), presence)
    if lost.to_end:
        runs = counted(lost.to_end, "unfinished run")
        yield f"{runs} without an owner that renews: tenure reconcile"
    if workers is None:
        return
    waiting = await _waiting(store)
    if lost.to_resume:
        waiting += await _to_resume(store, presence)
    for queue, number in sorted(waiting.items()):
        if not serving(queue, workers):
            runs = f"{counted(number, 'run')} {'waits' if number == 1 else 'wait'}"
            start = f"tenure worker --queue {shlex.quote(queue)}"
            yield f"{runs} in queue {queue!r}, which no worker serves: {start}"


async def _waiting(store: RunStateStore) -> Counter[str]:
    """By queue: for their first worker, or given back."""
    if not isinstance(store, CensusTaking):
        return Counter()
    return Counter({each.queue: each.runs for each in (await store.take_census()).queues})


async def _to_resume(store: RunStateStore, presence: Callable[[str], Presence]) -> Counter[str]:
    """By queue: they have lost their worker."""
    return Counter(
        [
            run.queue
            async for run in all_runs(store, HELD)
            if run.recovery is Recovery.RESUME
            and run.cancel_requested_at is None
            and doubt_about(run, presence) is not None
        ]
    )
