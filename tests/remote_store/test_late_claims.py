"""A gateway that stood still between the arrival of a claim and its execution takes no expired
lease: nobody could renew through it meanwhile."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tenure.client import HttpStore
from tenure.model.errors import LeaseHeld, TenureError
from tenure.model.leasing import LATE
from tenure.testing.contracts.acts import claim, create
from tenure.testing.factories import claim_request, lease_request
from tests.cli.conftest import TENURE

pytestmark = pytest.mark.slow

BRIEF = 0.2
PATIENCE = 20.0


class Gateway:
    """A process of its own, and a client of it."""

    def __init__(self, process: subprocess.Popen[bytes], store: HttpStore) -> None:
        self._process = process
        self.store = store

    async def frozen_during(self, call: Any) -> Any:
        """What became of it, asked while the process stood still for longer than may be."""
        await asyncio.sleep(2 * BRIEF)  # what is to end by then has
        self._process.send_signal(signal.SIGSTOP)
        try:
            asked = asyncio.ensure_future(call)
            await asyncio.wait([asked], timeout=LATE + 0.5)
            assert not asked.done()
        finally:
            self._process.send_signal(signal.SIGCONT)
        return await asked


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"127.0.0.1:{free.getsockname()[1]}"
    process = subprocess.Popen(
        [TENURE, "gateway", "--store", f"sqlite:///{tmp_path}/runs.db", "--listen", place],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        async with HttpStore(f"http://{place}") as store:
            await _answers(store)
            yield Gateway(process, store)
    finally:
        process.kill()
        process.wait()


async def _answers(store: HttpStore) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await store.list_runs()
            except TenureError:
                await asyncio.sleep(0.05)
            else:
                return


async def test_it_takes_none_and_a_later_claim_does(gateway: Gateway) -> None:
    store = gateway.store
    run, other = await create(store), await create(store)
    await claim(store, run.run_id, "owner-a", seconds=BRIEF)
    claimed = await gateway.frozen_during(
        store.claim_runs(claim_request("owner-b", seconds=6 * LATE, limit=5))
    )
    assert [each.snapshot.run_id for each in claimed] == [other.run_id]
    assert (await store.get_run(run.run_id)).owner_id == "owner-a"
    async with asyncio.timeout(PATIENCE):
        while not (
            taken := await store.claim_runs(claim_request("owner-b", seconds=6 * LATE, limit=5))
        ):
            await asyncio.sleep(0.1)
    assert [each.snapshot.takeovers for each in taken] == [1]


async def test_nor_does_the_claim_of_a_single_run(gateway: Gateway) -> None:
    run = await create(gateway.store)
    await claim(gateway.store, run.run_id, "owner-a", seconds=BRIEF)
    with pytest.raises(LeaseHeld):
        await gateway.frozen_during(
            gateway.store.claim_run(run.run_id, lease_request("owner-b", seconds=6 * LATE))
        )
