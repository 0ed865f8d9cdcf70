"""Workers that see nothing of the store but its gateway, which is killed and restarted as they
are. The witness and the journals say what they say of workers at the store itself."""

from __future__ import annotations

import asyncio
import random
import signal
from datetime import UTC, datetime

import pytest

import tenure
from tenure.client import HttpStore
from tenure.model.status import RunStatus
from tenure.model.update import LeaseRequest
from tests.system.workers.conftest import ON_POSTGRES
from tests.system.workers.fleet import CUT_OFF, UNDER_LOAD, Fleet, Leases, WorkerProcess
from tests.system.workers.front import Front
from tests.system.workers.invariants import History, owner_name
from tests.system.workers.load import Load, bring

pytestmark = pytest.mark.slow

UNTIL_TOLD = "while ! test -e {gate}; do sleep 0.02; done"
WORKERS, EACH = 3, 3


class TestGatewayWorkflowStoreAccess:
    """Seed 003, *Gateway workflow store access*."""

    async def test_worker_claims_runs_through_the_gateway(self, fleet: Fleet) -> None:
        """GIVEN a worker connected to the API gateway WHEN it requests runnable runs and claims a
        lease THEN the gateway proxies the store's operations and enforces lease semantics."""
        gate = fleet.folder / "gate"
        async with Front(fleet) as front, HttpStore(front.address) as remote:
            run_id = await fleet.submit(fleet.workflow(UNTIL_TOLD.format(gate=gate)))
            assert [run.run_id for run in (await remote.list_runnable()).items] == [run_id]
            worker = fleet.start()
            await fleet.starts(run_id)
            assert owner_name((await fleet.get(run_id)).owner_id) == worker.name
            assert not (await remote.list_runnable()).items
            request = LeaseRequest(owner_id="somebody", seconds=10, claim_id="mine")
            with pytest.raises(tenure.LeaseHeld):
                await remote.claim_run(run_id, request)
            gate.touch()
            run = await fleet.ended(run_id)
            assert (run.status, run.owner_id, run.fence) == (RunStatus.SUCCESS, None, 1)
            with pytest.raises(tenure.NotRunnable):
                await remote.claim_run(run_id, request)
            await fleet.sound()


@ON_POSTGRES
async def test_every_run_ends_once_though_a_worker_is_killed_and_the_gateway_restarts(
    fleet: Fleet,
) -> None:
    fleet.leases = UNDER_LOAD
    async with Front(fleet) as front:
        first, second = fleet.start("--concurrency", "3"), fleet.start("--concurrency", "3")
        await fleet.serving(first, second)
        runs = [await fleet.submit(fleet.workflow("sleep 0.8", "sleep 0.8")) for _ in range(6)]
        await fleet.sees(lambda lines: len(lines) >= 4)
        await fleet.kill(first)
        await cut_off(fleet, front, signal.SIGKILL)
        for run_id in runs:
            assert (await fleet.ended(run_id)).status is RunStatus.SUCCESS
        history = await fleet.sound()
        assert sum(run.takeovers for run in history.runs.values() if run) > 0


@ON_POSTGRES
async def test_a_gateway_that_is_restarted_in_good_order_takes_nothing_from_anybody(
    fleet: Fleet,
) -> None:
    """What runs meanwhile runs on, and its result is written once the gateway is back."""
    gate = fleet.folder / "gate"
    fleet.leases = Leases(lease=40.0, renew=1.0)
    async with Front(fleet) as front:
        fleet.start()
        run_id = await fleet.submit(fleet.workflow(UNTIL_TOLD.format(gate=gate), "true"))
        await fleet.starts(run_id)
        front.processes[-1].send(signal.SIGTERM)
        assert await front.processes[-1].ends() == 0
        gate.touch()
        await fleet.sees(lambda lines: any(line.what == "end" for line in lines))
        front.start()
        run = await fleet.ended(run_id)
        assert (run.status, run.fence, run.takeovers) == (RunStatus.SUCCESS, 1, 0)
        await fleet.sound()


@ON_POSTGRES
async def test_a_cancel_reaches_the_owner_through_the_gateway(fleet: Fleet) -> None:
    async with Front(fleet) as front:
        fleet.start()
        run_id = await fleet.submit(fleet.workflow("sleep 30"))
        await fleet.starts(run_id)
        async with tenure.Runner(front.address) as remote:
            await remote.cancel(run_id, reason="enough", by="somebody")
        run = await fleet.ended(run_id)
        assert (run.status, run.cancel_reason) == (RunStatus.CANCELED, "enough")
        await fleet.sound()


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [0, 1, 2])
async def test_a_minute_of_killing_behind_a_gateway(fleet: Fleet, seed: int) -> None:
    await storm(fleet, Load(runs=150), seed=seed)


async def storm(fleet: Fleet, load: Load, seed: int) -> None:
    fleet.leases, chance = CUT_OFF, random.Random(seed)
    async with Front(fleet) as front:
        workers = [start(fleet, number) for number in range(WORKERS)]
        bringing = asyncio.create_task(bring(load, fleet, chance))
        while not bringing.done():
            await asyncio.wait([bringing], timeout=chance.uniform(1.0, 2.0))
            number = chance.randrange(WORKERS + 1)
            if number == WORKERS:
                await cut_off(fleet, front, chance.choice([signal.SIGKILL, signal.SIGTERM]))
                continue
            await fleet.serving(workers[number])  # or none would ever begin, on a busy machine
            await fleet.kill(workers[number])
            workers[number] = start(fleet, number)
        await bringing
        await cut_off(fleet, front, signal.SIGKILL)
        await fleet.all_ended()
        history = await fleet.sound()
    assert {run and run.status for run in history.runs.values()} == {RunStatus.SUCCESS}
    assert len(front.processes) > 1
    assert lost_runs(history) > 0, "nobody lost a run"


async def cut_off(fleet: Fleet, front: Front, how: signal.Signals) -> None:
    """Once its workers have begun, or some would find no store to begin with. If the gateway was
    away for so long that nobody could renew in time (this machine is busy), they gave up what they
    had, as they should, and others may take it."""
    await fleet.serving(*(worker for worker in fleet.workers if worker.lives))
    begun = datetime.now(UTC)
    await front.restarts(how)
    if (datetime.now(UTC) - begun).total_seconds() > 1.5 * fleet.leases.renew:
        for worker in fleet.workers:
            fleet.lost.setdefault(worker.name, begun)


def start(fleet: Fleet, number: int) -> WorkerProcess:
    """Every second one believes to be on another machine: that it is dead, only its lease tells."""
    return (
        fleet.start("--concurrency", str(EACH)) if number % 2 else fleet.start_odd(elsewhere=True)
    )


def lost_runs(history: History) -> int:
    return sum(
        event.type == "lease.taken_over" for events in history.journals.values() for event in events
    )
