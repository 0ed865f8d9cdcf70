"""A request was done, and its answer never came: whoever sends it again is answered as the first
time, and nothing happened twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any
from urllib.parse import urlsplit

import pytest

from tenure.client import HttpStore
from tenure.model.errors import StoreUnavailable
from tenure.ports.leases import WorkerInfo
from tenure.ports.store import LogKey
from tenure.stores.memory import InMemoryStore
from tenure.testing.contracts.acts import claim, create, lease_of
from tenure.testing.factories import (
    LONG,
    claim_request,
    fencing_of,
    lease_request,
    new_run,
    start_run,
    unique,
)
from tests.postgres.proxy import Proxy
from tests.remote_store.front import gateway

pytestmark = pytest.mark.slow

OUT = LogKey(step=0, host="web1", stream="stdout")
Ask = Callable[[], Awaitable[Any]]
Prepare = Callable[[HttpStore], Awaitable[Ask]]


async def creation(store: HttpStore) -> Ask:
    new = new_run(run_id="created-1")
    return lambda: store.create_run(new)


async def update(store: HttpStore) -> Ask:
    started = start_run(await claim(store, (await create(store)).run_id))
    return lambda: store.update_run(started)


async def claim_of_many(store: HttpStore) -> Ask:
    await create(store)
    request = claim_request("worker-1", limit=5)
    return lambda: store.claim_runs(request)


async def claim_of_one(store: HttpStore) -> Ask:
    run, request = await create(store), lease_request("worker-1")
    return lambda: store.claim_run(run.run_id, request)


async def renewal(store: HttpStore) -> Ask:
    lease = lease_of(await claim(store, (await create(store)).run_id))
    return lambda: store.renew_leases([lease], LONG)


async def release(store: HttpStore) -> Ask:
    run, update_id = await claim(store, (await create(store)).run_id), unique("release")
    return lambda: store.release_lease(run.run_id, fencing_of(run), update_id)


async def output(store: HttpStore) -> Ask:
    run = await claim(store, (await create(store)).run_id)
    return lambda: store.append(run.run_id, fencing_of(run), OUT, 0, b"once")


async def heartbeat(store: HttpStore) -> Ask:
    return lambda: store.heartbeat(WorkerInfo(owner_id="a/b@worker 1"), LONG)


@asynccontextmanager
async def through_proxy(kept: InMemoryStore) -> AsyncIterator[tuple[Proxy, HttpStore]]:
    async with (
        gateway(kept) as address,
        Proxy(urlsplit(address).port or 0) as proxy,
        HttpStore(f"http://127.0.0.1:{proxy.port}") as store,
    ):
        yield proxy, store


async def all_there_is(kept: InMemoryStore) -> object:
    """Versions, owners and fences of all runs, who is there, and what was printed."""
    runs = [await kept.get_run(run.run_id) for run in (await kept.list_runs()).items]
    printed = [(await kept.read(run.run_id, OUT)).data for run in runs]
    workers = [worker.owner_id for worker in await kept.list_workers()]
    return [(run.version, run.owner_id, run.fence) for run in runs], printed, workers


@pytest.mark.parametrize(
    "prepare",
    [creation, update, claim_of_many, claim_of_one, renewal, release, output, heartbeat],
    ids=lambda prepare: str(prepare.__name__),
)
async def test_what_is_sent_again_happens_once(prepare: Prepare) -> None:
    kept = InMemoryStore()
    async with through_proxy(kept) as (proxy, store):
        ask = await prepare(store)
        proxy.lose_next_answer()
        with nullcontext() if prepare is release else pytest.raises(StoreUnavailable):
            await ask()  # what HTTP itself calls repeatable, its client repeats
        done = await all_there_is(kept)
        again = await ask()
        assert await all_there_is(kept) == done
        third = await ask()
        assert await all_there_is(kept) == done
    if prepare in (creation, update):
        assert again.version == third.version
    if prepare is claim_of_many:
        assert [each.lease.run_id for each in again] == [each.lease.run_id for each in third]
        assert len(again) == 1


async def test_a_gateway_that_falls_silent_is_a_store_that_is_away() -> None:
    async with (
        gateway(InMemoryStore()) as address,
        Proxy(urlsplit(address).port or 0) as proxy,
        HttpStore(f"http://127.0.0.1:{proxy.port}", timeout=0.2) as store,
    ):
        proxy.fall_silent()
        with pytest.raises(StoreUnavailable, match="did not answer"):
            await store.list_runs()
        proxy.speak_again()
        assert not (await store.list_runs()).items
