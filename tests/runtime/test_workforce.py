"""Workers are counted as they are now, not as they last said."""

from __future__ import annotations

from tenure.ports.leases import Presence, WorkerInfo
from tenure.runtime.explain import present_workers
from tenure.stores.memory import InMemoryStore
from tenure.testing.factories import embedded_run

SEEN = {"here": Presence.ALIVE, "killed": Presence.GONE, "elsewhere": Presence.UNSEEN}


async def test_the_killed_are_missing_and_the_busy_are_busy() -> None:
    store = InMemoryStore()
    for owner_id in SEEN:
        await store.heartbeat(WorkerInfo(owner_id=owner_id, concurrency=2, running=0), 60)
    for owner_id in ("here", "here", "killed"):
        await store.create_run(embedded_run(owner_id))
    there = await present_workers(store, SEEN.__getitem__)
    assert there is not None
    assert {each.owner_id: each.running for each in there} == {"here": 2, "elsewhere": 0}
