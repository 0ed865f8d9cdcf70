"""Runs that are to be canceled and whose worker is gone: no other worker is needed to end them."""

from __future__ import annotations

import signal

import pytest

import tenure
from tenure.model.status import RunStatus
from tests.system.workers.commanded import in_its_second_step
from tests.system.workers.conftest import ON_POSTGRES
from tests.system.workers.fleet import Fleet, Leases, WorkerProcess, processes_of

pytestmark = pytest.mark.slow

RUN = "to-cancel-1"


async def ended_without_a_worker(fleet: Fleet, before: tenure.RunSnapshot) -> None:
    run = await fleet.ended(RUN)
    assert (run.status, run.cancel_reason) == (RunStatus.CANCELED, "wrong release")
    assert run.fence == before.fence + 1, "it was claimed, as by anybody who takes a run over"
    assert processes_of([RUN]) == set()


async def asked_in_vain(fleet: Fleet, worker: WorkerProcess) -> None:
    """The request finds an owner that lives and cannot hear: nobody else ends the run then."""
    worker.send(signal.SIGSTOP)
    said = await fleet.command("cancel", RUN, "--reason", "wrong release")
    assert f"process {worker.pid} " in said
    assert "was asked to stop" in said
    assert (await fleet.command("reconcile")).startswith("nothing to do")
    assert not (await fleet.get(RUN)).ended


@ON_POSTGRES
async def test_cancel_ends_a_run_whose_worker_was_killed(fleet: Fleet) -> None:
    fleet.leases = Leases(lease=60, renew=20)
    worker = fleet.start()
    before = await in_its_second_step(fleet, worker, RUN)
    await fleet.kill(worker)
    said = await fleet.command("cancel", RUN, "--reason", "wrong release")
    assert said == f"{RUN} is canceled"
    await ended_without_a_worker(fleet, before)


async def test_reconcile_ends_a_run_whose_worker_was_killed_before_it_could_stop(
    fleet: Fleet,
) -> None:
    fleet.leases = Leases(lease=60, renew=20)
    worker = fleet.start()
    before = await in_its_second_step(fleet, worker, RUN)
    await asked_in_vain(fleet, worker)
    await fleet.kill(worker)
    assert "is gone; it was asked to stop and will be marked canceled by the next reconcile" in (
        await fleet.command("explain", RUN)
    )
    assert await fleet.command("reconcile") == f"1 run canceled, as was asked before: {RUN}"
    await ended_without_a_worker(fleet, before)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["proven dead", "lease over"])
@ON_POSTGRES
async def test_whoever_looks_for_abandoned_runs_ends_those_that_were_asked_to_stop(
    fleet: Fleet, elsewhere: bool
) -> None:
    """A worker of another queue, which could never execute it."""
    fleet.leases = Leases(lease=4 if elsewhere else 60, renew=1)
    worker = fleet.start_odd(elsewhere=True) if elsewhere else fleet.start()
    before = await in_its_second_step(fleet, worker, RUN)
    if elsewhere:
        worker.send(signal.SIGSTOP)
        await fleet.command("cancel", RUN, "--reason", "wrong release")
    else:
        await asked_in_vain(fleet, worker)
    await fleet.kill(worker)
    fleet.start("--queue", "another")
    await ended_without_a_worker(fleet, before)
