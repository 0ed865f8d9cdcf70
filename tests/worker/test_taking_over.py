"""A worker is lost in the middle of a run, and another goes on with it."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

import tenure
from tenure.model.leases import ClaimRequest
from tenure.model.status import HostStatus, RunStatus
from tenure.ports.leases import WorkerInfo
from tenure.system import new_owner_id, process_start
from tenure.workflow.spec import OnTakeover, Verify
from tests.runtime.puppets import Between, Puppet, shell, step, workflow
from tests.worker.conftest import LONG, NEXT, SHORT, Workers, eventually

pytestmark = pytest.mark.slow

THREE = workflow(step("one"), step("two"), step("three"))
WIDE = workflow(step("one"), hosts=("a", "b", "c", "d"))


async def lost_in(
    workers: Workers, act: Puppet, label: str, played: tenure.Workflow, **options: Any
) -> str:
    """A run whose worker was lost while ``label`` ran. What runs again is not held."""
    act.hold(label)
    worker = workers.start()
    run_id = await workers.submit(played, **options)
    await act.begins(label)
    await workers.lose(worker)
    return run_id


@pytest.mark.parametrize("store_url", ["memory", "sqlite"], indirect=True)
async def test_the_run_goes_on_where_it_was(workers: Workers, act: Puppet) -> None:
    run_id = await lost_in(workers, act, "two/local", THREE)
    workers.start(timing=NEXT)
    run = await workers.ended(run_id)
    assert act.begun == ["one/local", "two/local", "two/local#2", "three/local"]
    assert (run.status, run.takeovers, run.fence) == (RunStatus.SUCCESS, 1, 2)
    assert [each.hosts["local"].attempts for each in run.steps] == [1, 2, 1]


async def test_the_journal_shows_each_owner_with_its_fence(workers: Workers, act: Puppet) -> None:
    run_id = await lost_in(workers, act, "two/local", THREE)
    second = workers.start(timing=NEXT)
    await workers.ended(run_id)
    events = await workers.events(run_id)
    owners = [(e.type, e.data) for e in events if e.type.startswith("lease.")]
    assert [(kind, data and data["fence"]) for kind, data in owners] == [
        ("lease.claimed", 1),
        ("lease.taken_over", 2),
    ]
    assert owners[1][1] is not None
    assert owners[1][1]["owner_id"] == second.owner_id
    after = [e.type for e in events if e.fence == 2 and e.type.startswith("host.")]
    assert after == [
        f"host.{status}" for status in ["unknown", "running", "success", "running", "success"]
    ]


async def test_a_lease_that_is_renewed_is_never_taken_however_long_a_step_lasts(
    workers: Workers, act: Puppet
) -> None:
    act.hold("one/local")
    door = Between(workers.store)
    workers.start(timing=NEXT, store=door)
    run_id = await workers.submit(THREE)
    await act.begins("one/local")
    workers.start(timing=NEXT)
    for _ in range(4):
        workers.clock.leap(NEXT.lease_duration / 2)
        door.calls.clear()
        await eventually(lambda: door.count("renew_leases") > 1)
    act.let_go("one/local")
    run = await workers.ended(run_id)
    assert (run.status, run.takeovers) == (RunStatus.SUCCESS, 0)


async def test_finished_hosts_do_not_run_again_and_others_do(workers: Workers, act: Puppet) -> None:
    act.hold("one/b", "one/d")
    worker = workers.start()
    run_id = await workers.submit(WIDE)
    await act.begins("one/a", "one/b", "one/c", "one/d")
    done = ("a", "c")
    await workers.until(
        run_id, lambda run: all(run.steps[0].hosts[h].status == "success" for h in done)
    )
    await workers.lose(worker)
    workers.start(timing=NEXT)
    run = await workers.ended(run_id)
    assert run.status is RunStatus.SUCCESS
    assert sorted(act.begun[4:]) == ["one/b#2", "one/d#2"]


async def test_what_was_exported_is_there_again(workers: Workers, act: Puppet) -> None:
    act.results["one/local"] = tenure.TaskResult(vars={"version": "1.4"})
    played = workflow(step("one"), step("two", args={"which": "${{ version }}"}))
    run_id = await lost_in(workers, act, "two/local", played)
    workers.start(timing=NEXT)
    await workers.ended(run_id)
    assert act.tasks["two/local#2"].args == {"which": "1.4"}


async def test_a_loop_goes_on_with_its_item(workers: Workers, act: Puppet) -> None:
    played = workflow(step("one", loop=["x", "y", "z"]))
    run_id = await lost_in(workers, act, "one/local[1]", played)
    workers.start(timing=NEXT)
    run = await workers.ended(run_id)
    assert act.begun == ["one/local[0]", "one/local[1]", "one/local[1]#2", "one/local[2]"]
    items = run.steps[0].hosts["local"].items
    assert [(each.status, each.attempts) for each in items] == [
        ("success", 1),
        ("success", 2),
        ("success", 1),
    ]


async def test_retries_are_not_used_up_by_lost_workers(workers: Workers, act: Puppet) -> None:
    broken = tenure.TaskResult(status=HostStatus.FAILED, message="no")
    act.results |= {f"one/local#{n}": broken for n in (2, 3, 4)} | {"one/local": broken}
    played = workflow(step("one", retries=tenure.Retries(max=1)))
    run_id = await lost_in(workers, act, "one/local", played)
    workers.start(timing=NEXT)
    run = await workers.ended(run_id)
    assert act.begun == ["one/local", "one/local#2", "one/local#3"]
    assert run.steps[0].hosts["local"].attempts == 3


class TestOnTakeover:
    async def test_fail(self, workers: Workers, act: Puppet) -> None:
        played = workflow(step("one", on_takeover=OnTakeover.FAIL), step("two"))
        run_id = await lost_in(workers, act, "one/local", played)
        workers.start(timing=NEXT)
        run = await workers.ended(run_id)
        assert run.status is RunStatus.FAILED
        assert run.error is not None
        assert run.error.kind == "takeover"
        assert act.begun == ["one/local"]

    async def test_ask(self, workers: Workers, act: Puppet) -> None:
        played = workflow(step("one", on_takeover=OnTakeover.ASK), step("two"))
        run_id = await lost_in(workers, act, "one/local", played)
        workers.start(timing=NEXT)
        run = await workers.ended(run_id)
        assert run.status is RunStatus.INTERRUPTED
        assert "'one' ran on local" in (run.interrupted_reason or "")
        assert run.unconfirmed_hosts == ("local",)
        assert run.steps[0].hosts["local"].status is HostStatus.UNKNOWN
        assert act.begun == ["one/local"]

    @pytest.mark.parametrize(("probe", "again"), [("true", []), ("exit 1", ["one/local#2"])])
    async def test_verify(
        self, workers: Workers, act: Puppet, probe: str, again: list[str]
    ) -> None:
        played = workflow(step("one", verify=Verify(cmd=probe)), step("two"))
        run_id = await lost_in(workers, act, "one/local", played)
        workers.start(timing=NEXT)
        run = await workers.ended(run_id)
        assert run.status is RunStatus.SUCCESS
        assert act.begun == ["one/local", *again, "two/local"]
        said = run.steps[0].hosts["local"].message
        assert (said is None) == bool(again)

    async def test_the_action_may_say_what_is_usual_for_it(
        self, workers: Workers, act: Puppet
    ) -> None:
        @tenure.action("worker.tests.once", on_takeover="fail")
        async def once() -> None:
            act.begun.append("once")
            await asyncio.Event().wait()

        from tenure.actions import new_registry as registry

        workers.actions.update(registry())
        worker = workers.start()
        run_id = await workers.submit(workflow(step("one", action="worker.tests.once")))
        await eventually(lambda: "once" in act.begun)
        await workers.lose(worker)
        workers.start(timing=NEXT)
        assert (await workers.ended(run_id)).status is RunStatus.FAILED
        assert act.begun == ["once"]


async def test_a_cancel_request_for_a_lost_worker_starts_nothing(
    workers: Workers, act: Puppet
) -> None:
    act.hold("one/local")
    worker = workers.start()
    run_id = await workers.submit(THREE)
    await act.begins("one/local")
    # It is asked while its lease lasts, and dies before it hears of it.
    await workers.kill(worker)
    await workers.runner.cancel(run_id, reason="enough")
    workers.clock.leap(LONG.lease_duration)
    workers.start(timing=NEXT)
    run = await workers.ended(run_id)
    assert (run.status, run.cancel_reason) == (RunStatus.CANCELED, "enough")
    assert run.unconfirmed_hosts == ("local",)
    assert act.begun == ["one/local"]


async def test_a_run_that_costs_one_worker_after_another_is_left_to_people(
    workers: Workers, act: Puppet
) -> None:
    act.hold(*(["one/local"] + [f"one/local#{n}" for n in range(2, 9)]))
    run_id = await workers.submit(THREE)
    for n in range(1, 4):
        worker = workers.start(timing=NEXT, max_takeovers=2)
        await act.begins("one/local" if n == 1 else f"one/local#{n}")
        await workers.lose(worker)
    workers.start(timing=NEXT, max_takeovers=2)
    run = await workers.ended(run_id)
    assert (run.status, run.takeovers) == (RunStatus.INTERRUPTED, 3)
    assert "lost 3 times in a row" in (run.interrupted_reason or "")
    assert len(act.begun) == 3


async def test_so_is_one_whose_worker_can_not_trust_itself_again_and_again(
    workers: Workers, act: Puppet
) -> None:
    """As with an action that blocks its event loop: the worker lives, and is the next to claim."""
    act.hold(*(["one/local"] + [f"one/local#{n}" for n in range(2, 9)]))
    door = Between(workers.store)

    async def silent(real: Any, *args: Any, **kwargs: Any) -> Any:
        await asyncio.Event().wait()

    door.rules["renew_leases"] = silent
    workers.start(timing=SHORT, store=door, max_takeovers=2)
    run_id = await workers.submit(THREE)
    run = await workers.ended(run_id)
    assert (run.status, run.takeovers) == (RunStatus.INTERRUPTED, 3)
    assert "lost 3 times in a row" in (run.interrupted_reason or "")
    assert len(act.begun) == 3
    owners = [e.type for e in await workers.events(run_id) if e.type.startswith("lease.")]
    assert owners == ["lease.claimed"] + ["lease.taken_over"] * 3


async def test_the_runs_time_goes_on(workers: Workers, act: Puppet) -> None:
    run_id = await lost_in(workers, act, "one/local", THREE, timeout=0.5)
    act.hold("one/local#2")
    workers.start(timing=NEXT)
    run = await workers.ended(run_id)
    assert run.status is RunStatus.FAILED
    assert run.error is not None
    assert run.error.kind == "timeout"


async def test_whose_process_is_gone_is_replaced_without_waiting_for_its_lease(
    workers: Workers, act: Puppet, dead_owner: str
) -> None:
    run_id = await workers.submit(THREE)
    request = ClaimRequest(owner_id=dead_owner, seconds=600, claim_id="dead", limit=1)
    assert len(await workers.store.claim_runs(request)) == 1
    act.hold("one/local")
    # Claimed and not yet begun: it is offered again, and so is what had begun.
    workers.start(timing=LONG)
    run = await workers.until(run_id, lambda run: run.status is RunStatus.RUNNING)
    assert run.takeovers == 1
    act.let_go("one/local")
    await workers.ended(run_id)


@pytest.fixture
def neighbour() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Another process of this machine, and its id as an owner."""
    machine, boot, namespace, _, _, unique = new_owner_id().split("/")
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        start = process_start(process.pid)
        yield f"{machine}/{boot}/{namespace}/{process.pid}/{start}/{unique}", process
        process.kill()


@pytest.mark.parametrize("known_by", ["its run", "its heartbeat"])
async def test_nor_is_the_next_look_for_the_dead_waited_for(
    workers: Workers, neighbour: tuple[str, subprocess.Popen[bytes]], known_by: str
) -> None:
    """Whoever was seen while it lived is missed as soon as it is gone."""
    owner, process = neighbour
    door, blind = Between(workers.store), asyncio.Event()
    looked = 0

    async def look(real: Any, request: Any) -> Any:
        nonlocal looked
        looked += 1
        return [] if not blind.is_set() else await real(request)

    async def claims() -> str:
        run_id = await workers.submit(THREE)
        request = ClaimRequest(owner_id=owner, seconds=600, claim_id="its", limit=1)
        assert len(await workers.store.claim_runs(request)) == 1
        return run_id

    door.rules["claim_runs"] = look
    run_id = await claims() if known_by == "its run" else None
    if run_id is None:
        await workers.store.heartbeat(WorkerInfo(owner_id=owner), 600)
    workers.start(timing=LONG, store=door, reconcile_interval=3600)
    await eventually(lambda: looked and door.count("heartbeat") > 1)
    run_id = run_id or await claims()
    blind.set()
    process.kill()
    process.wait()
    run = await workers.ended(run_id)
    assert (run.status, run.takeovers) == (RunStatus.SUCCESS, 1)


class TestSomebodyElseHasIt:
    async def test_nothing_of_it_is_written_or_runs_here_any_more(
        self, workers: Workers, act: Puppet
    ) -> None:
        """The worker cannot renew: it stops by itself, and its successor finds what it left."""
        act.hold("two/local")
        door = Between(workers.store)

        async def silent(real: Any, *args: Any, **kwargs: Any) -> Any:
            await asyncio.Event().wait()

        workers.start(timing=SHORT, store=door)
        run_id = await workers.submit(THREE)
        await act.begins("two/local")
        door.rules |= {"renew_leases": silent, "claim_runs": silent, "list_runs": silent}
        await eventually(lambda: act.cancelled)
        run = await workers.run(run_id)
        assert run.status is RunStatus.RUNNING
        assert run.steps[1].hosts["local"].status is HostStatus.RUNNING
        workers.start(timing=SHORT)
        run = await workers.ended(run_id)
        assert run.status is RunStatus.SUCCESS
        assert act.begun == ["one/local", "two/local", "two/local#2", "three/local"]

    async def test_who_was_frozen_after_its_claim_begins_nothing(
        self, workers: Workers, act: Puppet
    ) -> None:
        door = Between(workers.store)
        asked = asyncio.Event()

        async def late(real: Any, run_id: str) -> Any:
            asked.set()
            await asyncio.sleep(SHORT.lease_duration)
            return await real(run_id)

        door.rules["get_definition"] = late
        first = workers.start(timing=SHORT, store=door)
        run_id = await workers.submit(THREE)
        await asked.wait()
        first.drain()
        await workers.returns(first)
        run = await workers.run(run_id)
        assert (run.status, run.owner_id) == (RunStatus.QUEUED, None)
        assert act.begun == []


@pytest.mark.slow
async def test_a_real_command_is_rerun(workers: Workers, tmp_path: Any) -> None:
    witness = tmp_path / "witness"
    played = workflow(
        shell("one", f"echo one >> {witness}"),
        shell("two", f"echo two >> {witness}; test -e {tmp_path}/go || sleep 60"),
    )
    worker = workers.start()
    run_id = await workers.submit(played)
    await eventually(lambda: witness.exists() and "two" in witness.read_text())
    await workers.lose(worker)
    (tmp_path / "go").touch()
    workers.start(timing=NEXT)
    assert (await workers.ended(run_id)).status is RunStatus.SUCCESS
    assert witness.read_text().split() == ["one", "two", "two"]


async def test_an_export_that_held_a_secret_is_lost_with_its_worker(
    workers: Workers, act: Puppet
) -> None:
    act.results["one/local"] = tenure.TaskResult(vars={"session": "opensesame-1"})
    played = workflow(step("one"), step("two"), secrets=["token"])
    act.hold("two/local")
    secrets = {"token": "opensesame"}
    worker = workers.start(secrets=secrets)
    run_id = await workers.submit(played)
    await act.begins("two/local")
    await workers.lose(worker)
    workers.start(timing=NEXT, secrets=secrets)
    run = await workers.ended(run_id)
    assert run.status is RunStatus.INTERRUPTED
    assert "'one' exported as session" in (run.interrupted_reason or "")
    assert act.begun == ["one/local", "two/local"]
