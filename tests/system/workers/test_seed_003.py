"""Seed 003: workers on one store, with real processes. Each test is named after its scenario.

==================================================  ============================================
Multiple workers share a workflow store             ``TestDistributedWorkflowStorage``
Worker claims a run exclusively                     ``TestRunClaimingAndLeasing``
Lease expiry allows takeover                        ``TestRunClaimingAndLeasing``
Worker renews a lease                               ``TestLeaseRenewalAndRelease``
Worker releases a lease on completion               ``TestLeaseRenewalAndRelease``
Worker lists runnable runs                          ``TestRunnableRunDiscovery``
Configuration: run lease controls                   ``TestConfigurationAndGuidance``
If a worker crashes, another one can claim          ``TestConfigurationAndGuidance``
Worker claims runs through the gateway              ``test_behind_gateway.py``
==================================================  ============================================

That a claim which finds a run taken is tried again when its lease has ended is what every test of a
takeover here shows.
"""

from __future__ import annotations

import asyncio
import signal
from datetime import UTC, datetime

import pytest

import tenure
from tenure.model.leases import ClaimRequest
from tenure.model.status import RunStatus
from tenure.model.update import LeaseRequest
from tests.system.workers.fleet import Fleet, Leases
from tests.system.workers.invariants import owner_name

pytestmark = pytest.mark.slow

QUICK = "true"
LONG = "sleep 30"
UNTIL_TOLD = "while ! test -e {gate}; do sleep 0.02; done"


def request(owner_id: str) -> LeaseRequest:
    return LeaseRequest(owner_id=owner_id, seconds=10, claim_id=owner_id)


class TestDistributedWorkflowStorage:
    async def test_multiple_workers_share_a_workflow_store(self, fleet: Fleet) -> None:
        """GIVEN two workers on the same store WHEN runs are created THEN either can discover
        them."""
        workers = [fleet.start("--concurrency", "1") for _ in range(2)]
        await fleet.serving(*workers)
        for _ in range(6):
            await fleet.submit(fleet.workflow("sleep 0.2"))
        await fleet.all_ended()
        history = await fleet.sound()
        claims = [
            e for events in history.journals.values() for e in events if e.type[:5] == "lease"
        ]
        owners = {owner_name((each.data or {})["owner_id"]) for each in claims}
        assert owners == {worker.name for worker in workers}


class TestRunClaimingAndLeasing:
    async def test_worker_claims_a_run_exclusively(self, fleet: Fleet) -> None:
        """GIVEN a runnable run WHEN a worker claims it THEN others cannot while the lease is
        valid."""
        gate = fleet.folder / "gate"
        run_id = await fleet.submit(fleet.workflow(UNTIL_TOLD.format(gate=gate)))
        fleet.start()
        await fleet.starts(run_id)
        await fleet.serving(fleet.start())
        with pytest.raises(tenure.LeaseHeld):
            await fleet.store.claim_run(run_id, request("somebody"))
        asked = ClaimRequest(owner_id="somebody", seconds=10, claim_id="all", limit=10)
        assert await fleet.store.claim_runs(asked) == []
        gate.touch()
        run = await fleet.ended(run_id)
        assert (run.status, run.fence) == (RunStatus.SUCCESS, 1)
        await fleet.sound()

    async def test_lease_expiry_allows_takeover(self, fleet: Fleet) -> None:
        """GIVEN a worker that claimed a run and stops renewing WHEN the lease expires THEN another
        claims it and continues."""
        gate = fleet.folder / "gate"
        played = fleet.workflow(QUICK, f"test -e {gate} || {LONG}", QUICK)
        run_id = await fleet.submit(played)
        first = fleet.start_odd(elsewhere=True)
        await fleet.starts(run_id, place=1)
        lease_ends = (await fleet.get(run_id)).lease_expires_at
        gate.touch()
        second = fleet.start()
        await fleet.serving(second)
        await fleet.kill(first)
        run = await fleet.ended(run_id)
        assert (run.status, run.takeovers) == (RunStatus.SUCCESS, 1)
        history = await fleet.sound()
        (taken,) = [e for e in history.journals[run_id] if e.type == "lease.taken_over"]
        assert lease_ends is not None
        assert taken.at >= lease_ends
        assert owner_name((taken.data or {})["owner_id"]) == second.name
        starts = [(line.place, line.fence) for line in history.lines if line.what == "start"]
        assert starts == [("0", 1), ("1", 1), ("1", 2), ("2", 2)]


class TestLeaseRenewalAndRelease:
    async def test_worker_renews_a_lease(self, fleet: Fleet) -> None:
        """GIVEN a worker executing a run WHEN it renews THEN the expiration extends without
        changing ownership: a step of three leases is never taken over."""
        run_id = await fleet.submit(fleet.workflow(f"sleep {3 * fleet.leases.lease}"))
        fleet.start()
        await fleet.starts(run_id)
        await fleet.serving(fleet.start())
        before = await fleet.get(run_id)
        seen = {before.lease_expires_at}
        run = before
        while not run.ended:
            seen.add(run.lease_expires_at)
            assert (run.owner_id, run.fence) == (before.owner_id, before.fence)
            await asyncio.sleep(0.05)
            run = await fleet.get(run_id)
        assert len(seen) > 3
        assert (run.status, run.takeovers, run.fence) == (RunStatus.SUCCESS, 0, 1)
        await fleet.sound()

    async def test_worker_releases_a_lease_on_completion(self, fleet: Fleet) -> None:
        """GIVEN a worker that finishes a run WHEN it releases the lease THEN the run is no longer
        owned and not eligible for execution; both in the one update that ends it."""
        run_id = await fleet.submit(fleet.workflow(QUICK))
        fleet.start()
        run = await fleet.ended(run_id)
        assert (run.owner_id, run.lease_expires_at) == (None, None)
        with pytest.raises(tenure.NotRunnable):
            await fleet.store.claim_run(run_id, request("somebody"))
        assert (await fleet.store.list_runnable()).items == ()
        history = await fleet.sound()
        last = history.journals[run_id][-1]
        assert (last.type, last.version) == ("run.success", run.version)


class TestRunnableRunDiscovery:
    async def test_worker_lists_runnable_runs(self, fleet: Fleet) -> None:
        """GIVEN runnable runs WHEN a worker queries for them THEN the store returns a filtered,
        paginated list: here without those that a worker has."""
        gate = fleet.folder / "gate"
        held = await fleet.submit(fleet.workflow(UNTIL_TOLD.format(gate=gate)))
        fleet.start("--concurrency", "1")
        await fleet.starts(held)
        waiting = [await fleet.submit(fleet.workflow(QUICK)) for _ in range(3)]
        await fleet.submit(fleet.workflow(QUICK), queue="reports")
        default = tenure.RunFilter(queue="default")
        first = await fleet.store.list_runnable(default, limit=2)
        rest = await fleet.store.list_runnable(default, limit=2, cursor=first.cursor)
        assert [run.run_id for run in (*first.items, *rest.items)] == waiting
        assert rest.cursor is None
        gate.touch()
        fleet.start("--queue", "reports")
        await fleet.all_ended()
        await fleet.sound()


class TestConfigurationAndGuidance:
    async def test_run_lease_controls(self, fleet: Fleet) -> None:
        """Lease duration and renewal cadence are configured, and what cannot work is refused when
        the worker starts, naming the rule."""
        worker = fleet.start()
        run_id = await fleet.submit(fleet.workflow("sleep 0.5"))
        await fleet.starts(run_id)
        ends = (await fleet.get(run_id)).lease_expires_at
        assert ends is not None
        assert (ends - datetime.now(UTC)).total_seconds() <= fleet.leases.lease
        refused = fleet.start(env={"TENURE_RENEW_INTERVAL": f"{fleet.leases.lease}s"})
        assert await refused.ends() == 2
        assert "renew_interval ≤ lease_duration / 2 does not hold" in refused.complaints
        await fleet.ended(run_id)
        assert worker.lives
        await fleet.sound()

    async def test_if_a_worker_crashes_another_one_can_claim_once_the_lease_expires(
        self, fleet: Fleet
    ) -> None:
        """Of a machine that is gone nobody can tell but its lease; nobody needs to do anything."""
        gate = fleet.folder / "gate"
        run_id = await fleet.submit(fleet.workflow(f"test -e {gate} || {LONG}"))
        first = fleet.start_odd(elsewhere=True)
        await fleet.starts(run_id)
        await fleet.kill(first)
        gate.touch()
        run = await fleet.get(run_id)
        assert (run.status, owner_name(run.owner_id)) == (RunStatus.RUNNING, first.name)
        fleet.start()
        assert (await fleet.ended(run_id)).status is RunStatus.SUCCESS
        await fleet.sound()

    async def test_a_worker_that_is_told_to_go_gives_its_runs_back_at_once(
        self, fleet: Fleet
    ) -> None:
        fleet.leases = Leases(lease=20.0, renew=5.0)  # no lease ends by itself meanwhile
        gate = fleet.folder / "gate"
        run_id = await fleet.submit(fleet.workflow(f"test -e {gate} || {LONG}"))
        first = fleet.start()
        await fleet.starts(run_id)
        gate.touch()
        first.send(signal.SIGTERM)
        assert await first.ends() == 0
        run = await fleet.get(run_id)
        assert (run.status, run.owner_id) == (RunStatus.RUNNING, None)
        fleet.start()
        run = await fleet.ended(run_id)
        assert (run.status, run.takeovers) == (RunStatus.SUCCESS, 0)
        await fleet.sound()
