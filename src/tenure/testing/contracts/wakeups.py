"""``Wakeups``: whoever listens is told, soon, that there may be something to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tenure.model.query import topic_of_owner, topic_of_queue
from tenure.model.snapshot import Approval
from tenure.ports.leases import Wakeups
from tenure.testing.contracts.acts import claim, create, create_embedded, write
from tenure.testing.contracts.harness import ContractHarness, WakingStore
from tenure.testing.factories import approve, cancel, fencing_of, unique

_SOON = 20.0
"""Seconds; for a machine that is very busy."""


class WakeupsContract(ContractHarness):
    async def test_store_wakes(self, store: WakingStore) -> None:
        assert isinstance(store, Wakeups)

    async def test_new_run_is_told_to_who_waits_for_its_queue(self, store: WakingStore) -> None:
        async with listening(store, topic_of_queue("gpu")) as heard:
            await create(store, queue="gpu")
            await heard.wait()

    async def test_one_of_several_topics_is_enough(self, store: WakingStore) -> None:
        topics = (topic_of_queue("gpu"), topic_of_queue("default"))
        async with listening(store, *topics) as heard:
            await create(store)
            await heard.wait()

    async def test_released_run_is_told(self, store: WakingStore) -> None:
        run = await claim(store, (await create(store)).run_id)
        async with listening(store, topic_of_queue(run.queue)) as heard:
            await store.release_lease(run.run_id, fencing_of(run), unique("release"))
            await heard.wait()

    async def test_approved_run_is_told(self, store: WakingStore) -> None:
        run = await create(store, approval=Approval(required=True))
        async with listening(store, topic_of_queue(run.queue)) as heard:
            await write(store, approve(run))
            await heard.wait()

    async def test_cancel_request_is_told_to_the_owner(self, store: WakingStore) -> None:
        run = await create_embedded(store, "owner-a")
        async with listening(store, topic_of_owner("owner-a")) as heard:
            await write(store, cancel(run))
            await heard.wait()

    async def test_many_may_listen(self, store: WakingStore) -> None:
        topic = topic_of_queue("default")
        async with listening(store, topic) as first, listening(store, topic) as second:
            await create(store)
            await first.wait()
            await second.wait()

    async def test_who_stopped_listening_is_told_no_more(self, store: WakingStore) -> None:
        topic = topic_of_queue("default")
        async with listening(store, topic) as stays:
            async with listening(store, topic) as left:
                pass
            left.clear()
            stays.clear()
            await create(store)
            await stays.wait()
            assert not left.is_set()

    async def test_listening_may_begin_again(self, store: WakingStore) -> None:
        for _ in range(2):
            async with listening(store, topic_of_queue("default")) as heard:
                await create(store)
                await heard.wait()


@asynccontextmanager
async def listening(store: Wakeups, *topics: str) -> AsyncIterator[asyncio.Event]:
    """Set by the next hint; listening has begun. Nothing in here takes for ever."""
    heard = asyncio.Event()
    async with store.listen(topics, heard.set), asyncio.timeout(_SOON):
        await heard.wait()
        heard.clear()
        yield heard
