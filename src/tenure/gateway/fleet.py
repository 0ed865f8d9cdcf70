"""Who executes runs."""

from __future__ import annotations

from collections import defaultdict

from tenure.gateway.calls import Answer, Call
from tenure.model.errors import NotSupported
from tenure.model.query import MAX_PAGE, RunFilter
from tenure.ports.run_store import RunStateStore
from tenure.ports.workers import WorkerInfo, WorkerRegistry
from tenure.runtime.owners import NO_LONGER
from tenure.wire.listings import NoQuery, PresentWorker, Workers


async def list_workers(call: Call[NoQuery, None]) -> Answer:
    store, caller = call.parts.store, call.caller
    if not isinstance(store, WorkerRegistry):
        raise NotSupported(f"{type(store).__name__} keeps no list of workers")
    present = [
        worker
        for worker in await store.list_workers()
        if call.parts.presence(worker.owner_id) not in NO_LONGER
        and any(map(caller.may_touch, worker.queues))
    ]
    held = await _held(store, caller.queues)
    return Answer(value=Workers(workers=tuple(_shown(each, held) for each in present)))


async def _held(store: RunStateStore, queues: frozenset[str] | None) -> dict[str, tuple[str, ...]]:
    """Runs by their owner; the newest, should there be more than one can look through at once."""
    page = await store.list_runs(RunFilter(held=True), limit=MAX_PAGE)
    held: dict[str, tuple[str, ...]] = defaultdict(tuple)
    for run in page.items:
        if run.owner_id is not None and (queues is None or run.queue in queues):
            held[run.owner_id] += (run.run_id,)
    return held


def _shown(worker: WorkerInfo, held: dict[str, tuple[str, ...]]) -> PresentWorker:
    return PresentWorker(
        owner_id=worker.owner_id,
        queues=worker.queues,
        concurrency=worker.concurrency,
        running=worker.running,
        details=worker.details,
        seen_at=worker.seen_at,
        runs=held.get(worker.owner_id, ()),
        draining=worker.draining,
    )
