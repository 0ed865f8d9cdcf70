"""A run that comes alone, to a worker that waits for one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tenure
from tenure.model.errors import NotRunnable
from tenure.model.leases import Beginning, ClaimRequest
from tenure.model.status import RunStatus
from tenure.testing.factories import lease_request
from tests.runtime.puppets import PATIENCE, Between, Puppet, step, workflow
from tests.worker.conftest import LONG, Workers, eventually

FIRST = workflow(step("first"))
THREE = workflow(step("one"), step("two"), step("three"))
BRIEF = tenure.Timing(lease_duration=60, renew_interval=0.2, margin=59.7)
"""Soon no longer trusted."""
THREES = ["one/local", "two/local", "three/local"]

AND_POSTGRES = pytest.mark.parametrize(
    "store_url", ["memory", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True
)


@pytest.fixture
async def door(workers: Workers) -> Between:
    door = Between(workers.store)
    setattr(door, "listen", workers.store.listen)  # noqa: B010
    return door


async def idle_behind(
    door: Between, workers: Workers, act: Puppet, timing: tenure.Timing = LONG
) -> Any:
    """A worker that has looked at everything, and now hears of what comes."""
    worker = workers.start(store=door, timing=timing, poll_interval=timing.lease_duration / 8)
    await workers.ended(await workers.submit(FIRST))
    door.calls.clear()
    act.begun.clear()
    return worker


@AND_POSTGRES
async def test_it_is_claimed_in_the_commit_that_begins_it(
    workers: Workers, act: Puppet, door: Between
) -> None:
    worker = await idle_behind(door, workers, act)
    run = await workers.ended(await workers.submit(THREE))
    assert run.status is RunStatus.SUCCESS
    assert act.begun == THREES
    assert (run.version, run.fence) == (1 + len(THREE.steps) + 1, 1)
    assert (door.count("begin_run"), door.count("claim_runs")) == (1, 0)
    events = await workers.events(run.run_id)
    begun = [event for event in events if event.version == 2]
    assert [event.type for event in begun] == [
        "lease.claimed", "run.running", "step.running", "host.running",
    ]  # fmt: skip
    assert begun[0].data is not None
    assert begun[0].data["owner_id"] == worker.owner_id


@AND_POSTGRES
async def test_two_that_come_together_are_claimed(
    workers: Workers, act: Puppet, door: Between
) -> None:
    await idle_behind(door, workers, act)
    both = asyncio.Event()

    async def find(real: Any, *args: Any, **kwargs: Any) -> Any:
        await both.wait()
        found = await real(*args, **kwargs)
        # Of the second it may not have heard yet.
        return found if len(found) > 1 else await real(*args, **kwargs)

    door.rules["find_waiting"] = find
    runs = [await workers.submit(THREE) for _ in range(2)]
    both.set()
    for run_id in runs:
        run = await workers.ended(run_id)
        assert run.version == 1 + 1 + len(THREE.steps) + 1
    assert door.count("begin_run") == 0


async def test_what_somebody_else_got_first_is_left_to_him(
    workers: Workers, act: Puppet, door: Between
) -> None:
    await idle_behind(door, workers, act)

    async def too_late(real: Any, beginning: Beginning) -> Any:
        del door.rules["begin_run"]
        await workers.runner.cancel(beginning.run_id)
        return await real(beginning)

    door.rules["begin_run"] = too_late
    run = await workers.ended(await workers.submit(THREE))
    assert (run.status, run.fence) == (RunStatus.CANCELED, 1)
    assert act.begun == []
    assert (await workers.ended(await workers.submit(THREE))).status is RunStatus.SUCCESS


@AND_POSTGRES
async def test_a_lost_answer_is_asked_for_again_and_nothing_starts_twice(
    workers: Workers, act: Puppet, door: Between
) -> None:
    await idle_behind(door, workers, act)

    async def lose(real: Any, beginning: Beginning) -> Any:
        del door.rules["begin_run"]
        await real(beginning)
        raise tenure.StoreUnavailable("the answer was lost")

    door.rules["begin_run"] = lose
    run = await workers.ended(await workers.submit(THREE))
    assert (run.status, run.version, run.takeovers) == (RunStatus.SUCCESS, 5, 0)
    assert act.begun == THREES
    sent = [args for name, args in door.calls if name == "begin_run"]
    assert len(sent) == 2
    assert sent[0] == sent[1]


async def test_one_that_is_about_to_begin_here_is_not_taken_again(
    workers: Workers, act: Puppet, door: Between
) -> None:
    """Whatever makes the worker look meanwhile finds it still waiting."""
    await idle_behind(door, workers, act)
    act.hold("other/local")
    other = await workers.submit(workflow(step("other")))
    await act.begins("other/local")
    asked, answered = asyncio.Event(), asyncio.Event()

    async def late(real: Any, beginning: Beginning) -> Any:
        asked.set()
        await answered.wait()
        return await real(beginning)

    door.rules["begin_run"] = late
    run_id = await workers.submit(THREE)
    await asked.wait()
    looks, begins = door.count("find_waiting"), door.count("begin_run")
    act.let_go("other/local")
    await workers.ended(other)
    await eventually(lambda: door.count("find_waiting") > looks)
    answered.set()
    assert (await workers.ended(run_id)).status is RunStatus.SUCCESS
    assert (door.count("begin_run"), door.count("claim_runs")) == (begins, 0)


async def test_another_that_comes_while_one_is_about_to_begin_does_not_wait(
    workers: Workers, act: Puppet, door: Between
) -> None:
    """The look that its announcement causes finds the first still waiting, too. Whoever gets that
    one in the end, each begins once."""
    await idle_behind(door, workers, act)
    asked, answered = asyncio.Event(), asyncio.Event()

    async def late(real: Any, beginning: Beginning) -> Any:
        del door.rules["begin_run"]
        asked.set()
        await answered.wait()
        return await real(beginning)

    door.rules["begin_run"] = late
    first = await workers.submit(workflow(step("first")))
    await asked.wait()
    second = await workers.submit(workflow(step("second")))
    async with asyncio.timeout(LONG.lease_duration / 16):  # far less than it takes to look again
        await act.begins("second/local")
    answered.set()
    for run_id in (first, second):
        assert (await workers.ended(run_id)).status is RunStatus.SUCCESS
    assert sorted(act.begun) == ["first/local", "second/local"]


@AND_POSTGRES
async def test_one_that_cost_somebody_its_worker_is_claimed(
    workers: Workers, act: Puppet, door: Between
) -> None:
    """Who claims it counts its workers; who begins it does not."""
    run_id = await workers.submit(THREE)
    await _claimed(workers, "lost", 0.01)
    lease = await _claimed(workers, "second", 600)
    await idle_behind(door, workers, act)
    await workers.store.release_lease(run_id, lease.fencing, "gives-it-back")
    run = await workers.ended(run_id)
    assert (run.status, run.takeovers, run.fence) == (RunStatus.SUCCESS, 1, 3)
    assert (door.count("begin_run"), door.count("claim_runs")) == (0, 1)


async def test_who_was_frozen_in_between_begins_nothing(
    workers: Workers, act: Puppet, door: Between
) -> None:
    worker = await idle_behind(door, workers, act, BRIEF)
    asked = asyncio.Event()

    async def late(real: Any, beginning: Beginning) -> Any:
        receipt = await real(beginning)
        asked.set()
        await asyncio.sleep(BRIEF.trust)
        return receipt

    door.rules["begin_run"] = late
    run_id = await workers.submit(THREE)
    await asked.wait()
    worker.drain()
    await workers.returns(worker)
    run = await workers.run(run_id)
    assert (run.status, run.owner_id, run.fence) == (RunStatus.RUNNING, None, 1)
    assert act.begun == []


async def test_what_this_worker_cannot_execute_is_claimed_and_failed(
    workers: Workers, act: Puppet, door: Between
) -> None:
    await idle_behind(door, workers, act)

    async def damaged(real: Any, run_id: str) -> str:
        return "nothing that anybody could read"

    door.rules["get_definition"] = damaged
    run = await workers.ended(await workers.submit(THREE))
    assert run.status is RunStatus.FAILED
    assert door.count("begin_run") == 0


async def _claimed(workers: Workers, owner: str, seconds: float) -> Any:
    """The lease that this owner then has on what waits, or on what somebody lost."""
    request = ClaimRequest(owner_id=owner, seconds=seconds, claim_id=owner, limit=1)
    async with asyncio.timeout(PATIENCE):
        while not (claimed := await workers.store.claim_runs(request)):
            await asyncio.sleep(0.01)
    return claimed[0].lease


@pytest.mark.parametrize("said", ["fail", "ask"])
@pytest.mark.parametrize("why", ["frozen", "told to stop"])
async def test_what_was_to_begin_when_its_worker_went_begins_elsewhere_whatever_on_takeover_says(
    workers: Workers, act: Puppet, door: Between, why: str, said: str
) -> None:
    """It was never begun, and that is known: there is nothing to be careful about."""
    timing = BRIEF if why == "frozen" else LONG
    worker = await idle_behind(door, workers, act, timing)
    begun = asyncio.Event()

    async def late(real: Any, beginning: Beginning) -> Any:
        receipt = await real(beginning)
        begun.set()
        if why == "told to stop":
            worker.drain(at_once=True)
        await asyncio.sleep(timing.trust if why == "frozen" else 0.2)
        return receipt

    door.rules["begin_run"] = late
    run_id = await workers.submit(workflow(step("one", on_takeover=said), step("two")))
    await begun.wait()
    worker.drain(at_once=True)
    await workers.returns(worker)
    run = await workers.run(run_id)
    assert (run.status, run.owner_id, act.begun) == (RunStatus.RUNNING, None, [])
    assert run.steps[0].hosts["local"].attempts == 0
    workers.start()
    run = await workers.ended(run_id)
    assert (run.status, act.begun) == (RunStatus.SUCCESS, ["one/local", "two/local"])
    assert run.steps[0].hosts["local"].attempts == 1


async def test_one_that_was_asked_to_stop_begins_nothing(
    workers: Workers, act: Puppet, door: Between
) -> None:
    """Asked while somebody had it, who gave it back."""
    held = await workers.submit(FIRST)
    owner = await workers.store.claim_run(held, lease_request("somebody"))
    await idle_behind(door, workers, act)
    await workers.runner.cancel(held)
    await workers.store.release_lease(held, owner.lease.fencing, "given-back")
    run = await workers.ended(held)
    assert run.status is RunStatus.CANCELED
    types = [event.type for event in await workers.events(held)]
    assert not {"run.running", "host.running"} & set(types)


@pytest.mark.parametrize("error", [NotRunnable("it", "not runnable: it waits"), OSError("a bug")])
async def test_one_that_cannot_begin_so_is_tried_once_and_then_claimed(
    workers: Workers, act: Puppet, door: Between, error: Exception
) -> None:
    """It waits all the same: who looked again at once would look for ever."""
    await idle_behind(door, workers, act)

    async def refuse(*_: Any) -> Any:
        raise error

    door.rules["begin_run"] = refuse
    async with asyncio.timeout(LONG.lease_duration / 16):  # far less than it takes to look again
        run = await workers.ended(await workers.submit(THREE))
    assert (run.status, act.begun) == (RunStatus.SUCCESS, THREES)
    assert (door.count("begin_run"), door.count("claim_runs")) == (1, 1)


async def test_one_that_cannot_be_claimed_either_is_left_alone_for_a_while(
    workers: Workers, act: Puppet, door: Between
) -> None:
    await idle_behind(door, workers, act)
    claimed = asyncio.Event()

    async def refuse(real: Any, beginning: Beginning) -> Any:
        raise NotRunnable(beginning.run_id, "not runnable: it waits")

    async def nothing(*_: Any) -> Any:
        claimed.set()
        return []

    door.rules |= {"begin_run": refuse, "claim_runs": nothing}
    await workers.submit(THREE)
    await asyncio.wait_for(claimed.wait(), PATIENCE)
    await asyncio.sleep(0.3)
    assert (door.count("begin_run"), door.count("claim_runs")) == (1, 1)
