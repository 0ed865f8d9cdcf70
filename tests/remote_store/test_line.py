"""What stands behind what, on the way to a gateway."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.client import HttpStore
from tenure.client.transport import _MAX_CONNECTIONS
from tenure.model.errors import StoreRejected
from tenure.ports.store import LogKey
from tenure.stores.memory import InMemoryStore
from tenure.testing.contracts.acts import claim, create, lease_of
from tenure.testing.factories import LONG, fencing_of, new_run
from tenure.wire.leases import MAX_WRITES_BYTES
from tests.remote_store.front import gateway

pytestmark = pytest.mark.slow

OUT = LogKey(step=0, host="web1", stream="stdout")


class Busy(InMemoryStore):
    """Takes output only once it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        self.all_begun, self.goes_on = asyncio.Event(), asyncio.Event()

    async def append(self, *args: Any) -> int:
        self.begun += 1
        if self.begun == _MAX_CONNECTIONS:
            self.all_begun.set()
        await self.goes_on.wait()
        return await super().append(*args)


async def test_a_lease_is_renewed_however_much_output_waits() -> None:
    kept = Busy()
    async with gateway(kept) as address, HttpStore(address) as store:
        run = await claim(store, (await create(store)).run_id)
        output = [
            asyncio.create_task(store.append(run.run_id, fencing_of(run), OUT, 0, b"same"))
            for _ in range(_MAX_CONNECTIONS + 5)
        ]
        async with asyncio.timeout(20):
            await kept.all_begun.wait()
            (renewal,) = await store.renew_leases([lease_of(run)], LONG)
        assert renewal.ok
        assert not any(task.done() for task in output)
        kept.goes_on.set()
        assert set(await asyncio.gather(*output)) == {4}


async def test_much_output_goes_in_pieces() -> None:
    kept = InMemoryStore()
    async with gateway(kept) as address, HttpStore(address) as store:
        run = await claim(store, (await create(store)).run_id)
        data = bytes(range(256)) * (5 << 11)  # 2.5 MiB
        assert await store.append(run.run_id, fencing_of(run), OUT, 0, data) == len(data)
        read = b""
        while len(read) < len(data):
            read += (await store.read(run.run_id, OUT, len(read), limit=len(data))).data
        assert read == data


async def test_a_batch_may_be_larger_than_one_request() -> None:
    kept = InMemoryStore()
    async with gateway(kept) as address, HttpStore(address) as store:
        large = [new_run(definition="x" * (3 << 20)) for _ in range(4)]
        outcomes = await store.update_runs([*large, new_run(definition="x" * MAX_WRITES_BYTES)])
        assert [getattr(each, "version", None) for each in outcomes] == [1, 1, 1, 1, None]
        assert isinstance(outcomes[-1], StoreRejected)
        assert "too large to be sent" in str(outcomes[-1])
