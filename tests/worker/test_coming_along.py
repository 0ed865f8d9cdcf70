"""A run that comes along with its hint begins at the very moment, and not a word is said to the
store before."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tenure.model.leases import Beginning
from tenure.model.status import RunStatus
from tenure.stores.postgres import PostgresStore
from tests.runtime.puppets import PATIENCE, Between, Puppet, step, workflow
from tests.worker.conftest import LONG, Workers, eventually

KNOWN = workflow(step("known"))
HELD = workflow(step("held"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("store_url", ["postgres"], indirect=True),
]


@pytest.fixture
async def door(workers: Workers) -> Between:
    return behind(workers.store)


def behind(store: PostgresStore) -> Between:
    door = Between(store)
    setattr(door, "listen", store.listen)  # noqa: B010
    setattr(door, "offered_run", store.offered_run)  # noqa: B010
    return door


async def idle(door: Between, workers: Workers, act: Puppet, **rest: Any) -> Any:
    """A worker that has looked at everything, knows both workflows, and rests."""
    worker = workers.start(store=door, poll_interval=LONG.lease_duration / 8, **rest)
    for each in (KNOWN, HELD):
        await workers.ended(await workers.submit(each))
    await rests(door)
    act.begun.clear()
    return worker


async def rests(door: Between) -> None:
    """Whatever it looked at because something ended, it has looked by now; and it is so quiet that
    hints bring their runs along."""
    looked = -1
    while looked != (looked := door.count("find_waiting") + door.count("claim_runs")):
        await asyncio.sleep(0.15)
    door.calls.clear()


async def test_it_begins_without_a_look(workers: Workers, act: Puppet, door: Between) -> None:
    await idle(door, workers, act)
    act.hold("held/local")
    run_id = await workers.submit(HELD)
    await act.begins("held/local")
    names = {name for name, _ in door.calls}
    assert "begin_run" in names
    assert not names & {"find_waiting", "claim_runs", "get_definition"}
    act.let_go("held/local")
    run = await workers.ended(run_id)
    assert (run.status, run.fence, run.takeovers) == (RunStatus.SUCCESS, 1, 0)


async def test_each_of_several_does_while_there_is_room(
    workers: Workers, act: Puppet, door: Between
) -> None:
    await idle(door, workers, act, concurrency=2)
    act.hold("held/local")
    runs = [await workers.submit(HELD)]
    await act.begins("held/local")
    for _ in range(2):
        runs.append(await workers.submit(KNOWN))
        await workers.ended(runs[-1])
    runs.append(await workers.submit(HELD))
    await eventually(lambda: act.begun.count("held/local") == 2)
    await rests(door)
    last = await workers.submit(KNOWN)
    await asyncio.sleep(0.1)
    assert (await workers.run(last)).status is RunStatus.QUEUED
    act.let_go("held/local")
    for run_id in (*runs, last):
        assert (await workers.ended(run_id)).status is RunStatus.SUCCESS


async def test_worker_that_drains_begins_none(workers: Workers, act: Puppet, door: Between) -> None:
    worker = await idle(door, workers, act)
    act.hold("held/local")
    held = await workers.submit(HELD)
    await act.begins("held/local")
    worker.drain()
    await rests(door)
    run_id = await workers.submit(KNOWN)
    await asyncio.sleep(0.1)
    assert act.begun == ["held/local"]
    act.let_go("held/local")
    await workers.ended(held)
    await workers.returns(worker)
    assert (await workers.run(run_id)).status is RunStatus.QUEUED


async def test_of_two_workers_one_begins_it(
    workers: Workers, act: Puppet, door: Between, store_url: str
) -> None:
    await idle(door, workers, act)
    async with PostgresStore(store_url) as second:  # which hears the same hints by itself
        other = behind(second)
        worker = workers.start(store=other, poll_interval=LONG.lease_duration / 8)
        await rests(other)
        for _ in range(20):
            run = await workers.ended(await workers.submit(KNOWN))
            assert (run.status, run.fence, run.takeovers) == (RunStatus.SUCCESS, 1, 0)
        assert act.begun == ["known/local"] * 20
        assert door.count("begin_run") + other.count("begin_run") > 20
        worker.drain()
        await workers.returns(worker)


async def test_what_changed_meanwhile_does_not_begin(
    workers: Workers, act: Puppet, door: Between
) -> None:
    await idle(door, workers, act)

    async def too_late(real: Any, beginning: Beginning) -> Any:
        del door.rules["begin_run"]
        await workers.runner.cancel(beginning.run_id)
        return await real(beginning)

    door.rules["begin_run"] = too_late
    run = await workers.ended(await workers.submit(KNOWN))
    assert (run.status, run.fence) == (RunStatus.CANCELED, 1)
    assert act.begun == []
    assert (await workers.ended(await workers.submit(KNOWN))).status is RunStatus.SUCCESS


async def test_workflow_that_is_new_here_is_looked_up(
    workers: Workers, act: Puppet, door: Between
) -> None:
    await idle(door, workers, act)
    async with asyncio.timeout(PATIENCE):
        run = await workers.ended(await workers.submit(workflow(step("new"))))
    assert run.status is RunStatus.SUCCESS
    assert door.count("get_definition") == 1


async def test_it_is_not_held_up_by_a_claim_that_is_due_soon(
    workers: Workers, act: Puppet, door: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two claims there is an interval, a little less or a little more: here a lot more."""
    monkeypatch.setattr(random, "uniform", lambda *_: 200.0)
    workers.start(store=door, poll_interval=0.1)
    await workers.ended(await workers.submit(KNOWN))
    await rests(door)
    await asyncio.sleep(0.2)
    run = await workers.ended(await workers.submit(KNOWN))
    assert run.status is RunStatus.SUCCESS
    assert (door.count("begin_run"), door.count("claim_runs")) == (1, 0)


async def test_however_many_come_so_the_others_are_claimed_in_time(
    workers: Workers, act: Puppet, door: Between
) -> None:
    """What time brings about, a lease that ends or a run whose hour has come, has no hint."""
    workers.start(store=door, poll_interval=0.25)
    await workers.ended(await workers.submit(KNOWN))
    await rests(door)
    for _ in range(12):
        await workers.ended(await workers.submit(KNOWN))
        await asyncio.sleep(0.13)
    assert door.count("begin_run") >= 6
    assert door.count("claim_runs") >= 4
