"""Which workers are there, and how much each has to do: as the store has it, not as they last said.

A worker says that it is there every few seconds. By then it may have been killed, or have got its
hands full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from tenure.ports.liveness import Presence
from tenure.ports.owner_listing import OwnerListing
from tenure.ports.run_store import RunStateStore
from tenure.ports.workers import WorkerInfo, WorkerRegistry
from tenure.runtime.owners import NO_LONGER


async def present_workers(
    store: RunStateStore, presence: Callable[[str], Presence]
) -> list[WorkerInfo] | None:
    """Without those whose process is gone for certain. ``None``: the store keeps no register."""
    if not isinstance(store, WorkerRegistry):
        return None
    listed = await store.list_workers()
    there = [worker for worker in listed if presence(worker.owner_id) not in NO_LONGER]
    if not there or not isinstance(store, OwnerListing):
        return there
    held: Counter[str | None] = Counter()
    for each in await store.list_owners():
        held[each.owner_id] += each.runs
    return [replace(worker, running=held[worker.owner_id]) for worker in there]


def serving(queue: str, workers: Iterable[WorkerInfo]) -> list[WorkerInfo]:
    """Those that will take runs of ``queue``: who drains takes nothing more."""
    return [worker for worker in workers if queue in worker.queues and not worker.draining]
