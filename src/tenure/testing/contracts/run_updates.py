"""Updates: applied once, atomically, and checked in a fixed order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from tenure.model.compose import callback_failed, redelivered
from tenure.model.errors import (
    InvalidTransition,
    LeaseHeld,
    LeaseLost,
    RunNotFound,
    StoreRejected,
    TenureError,
    VersionConflict,
)
from tenure.model.snapshot import (
    Annotation,
    Counts,
    ErrorInfo,
    HostState,
    ItemState,
    RunSnapshot,
    StepState,
)
from tenure.model.status import HostStatus, RunStatus, StepKind, StepStatus
from tenure.model.update import (
    CallbackFailure,
    Changes,
    Effect,
    Fencing,
    HostChange,
    ItemChange,
    NewDelivery,
    RunChange,
    StepChange,
    Update,
)
from tenure.ports.store import RunStateStore
from tenure.testing.contracts.acts import (
    UNKNOWN_RUN_IDS,
    at_once,
    create,
    create_embedded,
    record_of,
    refused,
    start_first_step,
    write,
)
from tenure.testing.contracts.harness import ContractHarness
from tenure.testing.factories import (
    annotate,
    cancel,
    change_run,
    end_run,
    finish_host,
    finish_step,
    new_run,
    operator_status,
    owner_update,
    start_run,
    start_step,
    unique,
)

POISONS = [
    {"message": "half a pair: \ud800"},
    {"error": ErrorInfo(kind="k", message="\udfff")},
    {"unconfirmed_hosts": ("web\ud800",)},
]


class RunUpdates(ContractHarness):
    async def test_update_by_run_id(self, store: RunStateStore) -> None:
        run = await create_embedded(store)
        run = await start_first_step(store, run)
        run = await write(store, finish_host(run, 0, "web1"))
        assert run.steps[0].hosts["web1"].status == HostStatus.SUCCESS
        assert [item.run_id for item in (await store.list_runs()).items] == [run.run_id]

    async def test_run_id_remains_stable_through_lifecycle(self, store: RunStateStore) -> None:
        run = await create_embedded(store, run_id="one-identity")
        for update in (start_step, finish_step, end_run):
            receipt = await store.update_run(update(run))
            run = await store.get_run("one-identity")
            assert receipt.run_id == run.run_id == "one-identity"

    async def test_update_of_one_run_leaves_the_others_alone(self, store: RunStateStore) -> None:
        run, other = await create_embedded(store), await create_embedded(store, "owner-b")
        await start_first_step(store, run)
        assert record_of(await store.get_run(other.run_id)) == record_of(other)

    async def test_accepted_update_raises_version_by_one(self, store: RunStateStore) -> None:
        run = await create_embedded(store)
        for version, message in enumerate("abc", start=2):
            receipt = await store.update_run(change_run(run, message=message))
            run = await store.get_run(run.run_id)
            assert receipt.version == run.version == version
            assert (receipt.fence, receipt.status) == (run.fence, run.status)
            assert receipt.updated_at == run.updated_at

    async def test_updated_at_moves_strictly_forward(self, store: RunStateStore) -> None:
        """Even if the clock does not: readers order by it."""
        run = await create_embedded(store)
        seen = [run.updated_at]
        for number in range(5):
            run = await write(store, change_run(run, message=str(number)))
            seen.append(run.updated_at)
        assert all(earlier and later and earlier < later for earlier, later in pairwise(seen)), seen

    async def test_intent_and_result_of_a_host_are_kept(self, store: RunStateStore) -> None:
        run = await start_first_step(store, await create_embedded(store))
        started = run.updated_at
        result: dict[str, Any] = {
            "message": "done — ✓",
            "exit_code": 3,
            "attempts": 2,
            "changed": True,
            "stdout": "out\n\x1b[31mred\r\n",
            "stderr": "err\ufffd",
            "truncated": True,
            "vars": {"VERSION": "1.4", "nested": {"list": [1, None]}},
            "withheld": ("TOKEN",),
        }
        run = await write(store, finish_host(run, 0, "web2", HostStatus.FAILED, **result))
        step = run.steps[0]
        assert (step.status, step.started_at) == (StepStatus.RUNNING, started)
        assert step.hosts["web2"] == HostState(
            status=HostStatus.FAILED, started_at=started, finished_at=run.updated_at, **result
        )
        assert step.hosts["web1"].status == HostStatus.RUNNING

    async def test_later_fields_do_not_erase_earlier_ones(self, store: RunStateStore) -> None:
        run = await start_first_step(store, await create_embedded(store))
        progress = Changes(steps={0: StepChange(hosts={"web1": HostChange(stdout="50 %")})})
        run = await write(store, owner_update(run, progress))
        host = (await write(store, finish_host(run, 0, "web1", exit_code=0))).steps[0].hosts["web1"]
        assert (host.stdout, host.exit_code, host.attempts) == ("50 %", 0, 1)

    async def test_loop_items_are_kept_in_order(self, store: RunStateStore) -> None:
        run = await start_first_step(store, await create_embedded(store))
        first = HostChange(items={0: ItemChange(status=HostStatus.RUNNING)})
        run = await write(
            store, owner_update(run, Changes(steps={0: StepChange(hosts={"web1": first})}))
        )
        then = HostChange(
            items={
                0: ItemChange(status=HostStatus.SUCCESS, vars={"A": "1"}),
                1: ItemChange(status=HostStatus.SKIPPED),
            }
        )
        run = await write(
            store, owner_update(run, Changes(steps={0: StepChange(hosts={"web1": then})}))
        )
        items = run.steps[0].hosts["web1"].items
        assert [item.status for item in items] == [HostStatus.SUCCESS, HostStatus.SKIPPED]
        assert items[0].vars == {"A": "1"}
        assert isinstance(items[1], ItemState)

    async def test_step_that_was_not_planned_is_added_with_its_plan(
        self, store: RunStateStore
    ) -> None:
        run = await create_embedded(store)
        plan = StepState(
            index=2,
            name="reload",
            kind=StepKind.HANDLER,
            action="cmd.run",
            notified_by=1,
            hosts={"web1": _IDLE},
        )
        change = StepChange(
            status=StepStatus.RUNNING,
            plan=plan,
            hosts={"web1": HostChange(status=HostStatus.RUNNING)},
        )
        run = await write(store, owner_update(run, Changes(steps={2: change})))
        added = run.steps[2]
        assert (added.name, added.kind, added.status) == ("reload", "handler", "running")
        assert (added.action, added.notified_by) == ("cmd.run", 1)
        assert added.hosts["web1"].status == HostStatus.RUNNING
        assert (run.counts.steps_total, run.counts.hosts_total) == (3, 5)

    async def test_counts_follow_what_was_reached(self, store: RunStateStore) -> None:
        run = await start_first_step(store, await create_embedded(store))
        assert run.counts == _counts({StepStatus.RUNNING: 1}, {HostStatus.RUNNING: 2})
        run = await write(store, finish_host(run, 0, "web1", HostStatus.UNREACHABLE))
        assert run.counts == _counts(
            {StepStatus.RUNNING: 1}, {HostStatus.RUNNING: 1, HostStatus.UNREACHABLE: 1}
        )
        run = await write(store, finish_step(run, 0))
        assert run.counts == _counts(
            {StepStatus.SUCCESS: 1}, {HostStatus.SUCCESS: 1, HostStatus.UNREACHABLE: 1}
        )
        assert (await store.list_runs()).items[0].counts == run.counts

    async def test_run_fields_are_set_and_cleared(self, store: RunStateStore) -> None:
        error = ErrorInfo(kind="exit", message="no", step="s", host="web1", exit_code=2)
        run = await write(
            store,
            change_run(
                await create_embedded(store),
                message="going",
                last_error=error,
                unconfirmed_hosts=("web1",),
            ),
        )
        assert (run.message, run.last_error, run.unconfirmed_hosts) == ("going", error, ("web1",))
        run = await write(store, change_run(run, message=None))
        assert (run.message, run.last_error) == (None, error)

    @pytest.mark.parametrize("run_id", UNKNOWN_RUN_IDS, ids=ascii)
    async def test_update_of_an_unknown_run_is_refused(
        self, store: RunStateStore, run_id: str
    ) -> None:
        await refused(RunNotFound, store.update_run(cancel(new_run(run_id=run_id).snapshot)))
        assert (await store.list_runs()).items == ()

    async def test_update_sent_again_gets_the_first_answer(self, store: RunStateStore) -> None:
        run = await create_embedded(store)
        lost = change_run(run, message="first")
        assert (await store.update_run(lost)).version == 2
        assert (await store.update_run(lost)).version == 2
        run = await write(store, change_run(await store.get_run(run.run_id), message="second"))
        again = await store.update_run(lost)
        assert (again.version, again.updated_at) == (2, run.updated_at)
        assert record_of(await store.get_run(run.run_id)) == record_of(run)

    async def test_final_update_with_release_sent_again_gets_the_first_answer(
        self, store: RunStateStore
    ) -> None:
        run = await create_embedded(store)
        final = end_run(run, RunStatus.FAILED)
        first = await store.update_run(final)
        ended = await store.get_run(run.run_id)
        again = await store.update_run(final)
        assert (again.version, again.status) == (first.version, RunStatus.FAILED)
        assert await store.get_run(run.run_id) == ended

    async def test_release_without_an_end_sent_again_gets_the_first_answer(
        self, store: RunStateStore
    ) -> None:
        run = await create_embedded(store)
        letting_go = owner_update(run, Changes(), release=True)
        assert (await store.update_run(letting_go)).version == 2
        assert (await store.update_run(letting_go)).version == 2
        assert (await store.get_run(run.run_id)).version == 2

    async def test_one_update_sent_many_times_at_once_is_applied_once(
        self, store: RunStateStore
    ) -> None:
        run = await create_embedded(store)
        update = start_step(run)
        receipts, errors = await at_once(store.update_run(update) for _ in range(20))
        assert not errors
        assert {receipt.version for receipt in receipts} == {2}
        assert (await store.get_run(run.run_id)).version == 2

    async def test_one_of_many_conflicting_updates_wins(self, store: RunStateStore) -> None:
        run = await write(store, cancel(await create_embedded(store), reason="hurry"))
        updates = [change_run(run, message=str(number)) for number in range(20)]
        receipts, errors = await at_once(store.update_run(update) for update in updates)
        assert [receipt.version for receipt in receipts] == [run.version + 1]
        assert len(errors) == 19
        for error in errors:
            assert isinstance(error, VersionConflict)
            assert (error.version, error.fence) == (run.version + 1, run.fence)
            assert error.status == RunStatus.RUNNING
            assert error.cancel_requested_at == run.cancel_requested_at is not None
        assert (await store.get_run(run.run_id)).version == run.version + 1

    async def test_owner_rebases_on_what_the_conflict_tells(self, store: RunStateStore) -> None:
        """After an operator's note the owner writes its delta again without reading."""
        run = await create_embedded(store)
        await store.update_run(cancel(run))
        conflict = await refused(VersionConflict, store.update_run(start_step(run)))
        rebased = replace(
            start_step(run), base_version=conflict.version, update_id=unique("rebased")
        )
        after = await write(store, rebased)
        assert after.version == 3
        assert after.steps[0].status == StepStatus.RUNNING
        assert after.cancel_requested_at == conflict.cancel_requested_at is not None

    async def test_base_from_the_future_is_a_conflict(self, store: RunStateStore) -> None:
        run = await create_embedded(store)
        with pytest.raises(VersionConflict):
            await store.update_run(owner_update(run, Changes(), base_version=run.version + 1))

    async def test_other_update_id_on_an_old_base_is_a_conflict(self, store: RunStateStore) -> None:
        run = await create_embedded(store)
        update = change_run(run, message="same words")
        await store.update_run(update)
        await refused(VersionConflict, store.update_run(replace(update, update_id=unique("other"))))

    @pytest.mark.parametrize("fields", POISONS, ids=ascii)
    async def test_poisoned_update_is_rejected_without_a_trace(
        self, store: RunStateStore, fields: dict[str, Any]
    ) -> None:
        run = await create_embedded(store)
        await refused(StoreRejected, store.update_run(change_run(run, **fields)))
        assert record_of(await store.get_run(run.run_id)) == record_of(run)
        assert (await write(store, change_run(run, message="goes on"))).version == 2

    async def test_poisoned_host_variables_are_rejected(self, store: RunStateStore) -> None:
        run = await start_first_step(store, await create_embedded(store))
        await refused(StoreRejected, store.update_run(finish_host(run, vars={"A": "\ud800"})))
        assert record_of(await store.get_run(run.run_id)) == record_of(run)

    async def test_update_owing_a_callback_to_an_unknown_target_is_rejected(
        self, store: RunStateStore
    ) -> None:
        run = await create_embedded(store)
        update = end_run(run)
        stray = NewDelivery(id=unique("stray"), target="elsewhere", seq=0)
        with pytest.raises(StoreRejected):
            await store.update_run(
                replace(update, effect=replace(update.effect, deliveries=(stray,)))
            )
        assert record_of(await store.get_run(run.run_id)) == record_of(run)


_IDLE = HostState()


def _counts(steps: dict[StepStatus, int], hosts: dict[HostStatus, int]) -> Counts:
    return Counts(steps=steps, hosts=hosts, steps_total=2, hosts_total=4)


# The order of checks (see ``tenure.model.decide``): each scenario's update breaks two neighbouring
# rules, and its answer shows which is checked first.


class Case(NamedTuple):
    update: Update
    error: type[TenureError] | None = None
    """What is raised; ``None``: accepted, and ``version`` is what the receipt says."""
    version: int = 0


Scenario = Callable[[RunStateStore], Awaitable[Case]]


async def _taken_away(store: RunStateStore) -> tuple[RunSnapshot, Update]:
    """An owner whose applied intent the store knows, and whose fence is outdated."""
    run = await create_embedded(store)
    applied = start_step(run)
    run = await write(store, applied)
    run = await write(store, owner_update(run, Changes(), release=True))
    await store.update_run(operator_status(run, RunStatus.CANCELED))
    return await store.get_run(run.run_id), applied


async def unknown_run_before_ownership(store: RunStateStore) -> Case:
    stranger = replace(new_run(run_id="never-created").snapshot, version=1, fence=1)
    return Case(start_run(stranger), RunNotFound)


async def ownership_before_repetition(store: RunStateStore) -> Case:
    _, applied = await _taken_away(store)
    return Case(applied, LeaseLost)


async def ownership_before_same_end(store: RunStateStore) -> Case:
    run, applied = await _taken_away(store)
    agreeing = replace(end_run(run, RunStatus.CANCELED), lease=applied.lease)
    return Case(agreeing, LeaseLost)


async def ownership_before_base(store: RunStateStore) -> Case:
    run = await create_embedded(store)
    moved = await write(store, change_run(run, message="newer"))
    return Case(start_step(replace(run, fence=moved.fence + 1)), LeaseLost)


async def other_owner_with_the_right_fence_before_base(store: RunStateStore) -> Case:
    """A restored database can hand out a fence number twice."""
    run = await create_embedded(store)
    await store.update_run(change_run(run, message="newer"))
    return Case(start_step(replace(run, owner_id="owner-b")), LeaseLost)


async def other_owner_before_repetition(store: RunStateStore) -> Case:
    run = await create_embedded(store)
    applied = start_step(run)
    await store.update_run(applied)
    return Case(replace(applied, lease=Fencing("owner-b", run.fence)), LeaseLost)


async def ownership_before_transition(store: RunStateStore) -> Case:
    run = await create_embedded(store)
    return Case(change_run(replace(run, owner_id="owner-b"), status=RunStatus.QUEUED), LeaseLost)


async def repetition_before_same_end(store: RunStateStore) -> Case:
    """The receipt has the version of the first answer, not the present one."""
    run = await create_embedded(store)
    final = end_run(run)
    ended = await write(store, final)
    await store.update_run(annotate(ended, found="later"))
    return Case(final, version=ended.version)


async def repetition_before_released(store: RunStateStore) -> Case:
    run = await create_embedded(store)
    letting_go = owner_update(run, Changes(), release=True)
    await store.update_run(letting_go)
    return Case(letting_go, version=2)


async def repetition_before_base(store: RunStateStore) -> Case:
    run = await create_embedded(store)
    first = start_step(run)
    await store.update_run(first)
    await store.update_run(cancel(run))
    return Case(first, version=2)


async def same_end_before_released(store: RunStateStore) -> Case:
    """The last owner repeats its end in another update."""
    run = await create_embedded(store)
    ended = await write(store, end_run(run))
    return Case(owner_update(run, end_run(run).effect.changes), version=ended.version)


async def same_end_before_base(store: RunStateStore) -> Case:
    run = await create(store)
    ended = await write(store, operator_status(run, RunStatus.FAILED))
    agreeing = operator_status(run, RunStatus.FAILED, base_version=run.version)
    return Case(agreeing, version=ended.version)


async def released_before_base(store: RunStateStore) -> Case:
    run = await create_embedded(store)
    await store.update_run(owner_update(run, Changes(), release=True))
    return Case(start_step(run), LeaseLost)


async def released_before_transition(store: RunStateStore) -> Case:
    run = await create_embedded(store)
    ended = await write(store, end_run(run, RunStatus.FAILED))
    return Case(start_step(replace(run, version=ended.version)), LeaseLost)


async def held_before_base(store: RunStateStore) -> Case:
    run = await create_embedded(store)
    await store.update_run(change_run(run, message="newer"))
    return Case(operator_status(run, RunStatus.FAILED, base_version=run.version), LeaseHeld)


async def held_before_transition(store: RunStateStore) -> Case:
    return Case(operator_status(await create_embedded(store), RunStatus.QUEUED), LeaseHeld)


async def base_before_transition(store: RunStateStore) -> Case:
    run = await create_embedded(store)
    await store.update_run(change_run(run, message="newer"))
    return Case(change_run(run, status=RunStatus.QUEUED), VersionConflict)


async def transition_at_last(store: RunStateStore) -> Case:
    run = await create_embedded(store)
    return Case(change_run(run, status=RunStatus.QUEUED), InvalidTransition)


SCENARIOS: list[Scenario] = [
    unknown_run_before_ownership,
    ownership_before_repetition,
    other_owner_before_repetition,
    ownership_before_same_end,
    ownership_before_base,
    other_owner_with_the_right_fence_before_base,
    ownership_before_transition,
    repetition_before_same_end,
    repetition_before_released,
    repetition_before_base,
    same_end_before_released,
    same_end_before_base,
    released_before_base,
    released_before_transition,
    held_before_base,
    held_before_transition,
    base_before_transition,
    transition_at_last,
]


class OrderOfChecks(ContractHarness):
    @pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: str(scenario.__name__))
    async def test_order_of_checks(self, store: RunStateStore, scenario: Scenario) -> None:
        case = await scenario(store)
        before = {item.run_id: item for item in (await store.list_runs()).items}
        if case.error is None:
            assert (await store.update_run(case.update)).version == case.version
        else:
            with pytest.raises(case.error):
                await store.update_run(case.update)
        for run_id, summary in before.items():
            after = await store.get_run(run_id)
            assert after.version == summary.version
            assert after.updated_at == summary.updated_at

    async def test_refusals_say_who_stands_in_the_way(self, store: RunStateStore) -> None:
        run = await create_embedded(store, "owner-a")
        with pytest.raises(LeaseLost) as lost:
            await store.update_run(start_step(replace(run, owner_id="owner-b")))
        assert (lost.value.owner_id, lost.value.fence) == ("owner-a", run.fence)
        held = await refused(LeaseHeld, store.update_run(operator_status(run, RunStatus.FAILED)))
        assert held.owner_id == "owner-a"

    async def test_refused_update_leaves_no_trace(self, store: RunStateStore) -> None:
        run = await write(store, start_step(await create_embedded(store)))
        for update in (
            start_step(replace(run, fence=run.fence + 1)),
            operator_status(run, RunStatus.INTERRUPTED),
            replace(change_run(run, message="late"), base_version=1, update_id=unique("late")),
            change_run(run, status=RunStatus.QUEUED, message="never"),
            change_run(run, status=RunStatus.SUCCESS),
        ):
            with pytest.raises((LeaseLost, LeaseHeld, VersionConflict, InvalidTransition)):
                await store.update_run(update)
            assert record_of(await store.get_run(run.run_id)) == record_of(run)


class OperatorUpdates(ContractHarness):
    """Updates without a lease."""

    async def test_cancel_under_a_live_lease_asks_the_owner(self, store: RunStateStore) -> None:
        run = await create_embedded(store)
        receipt = await store.update_run(cancel(run, reason="wrong release"))
        asked = await store.get_run(run.run_id)
        assert (asked.status, asked.owner_id, asked.fence) == ("running", "owner-a", run.fence)
        assert asked.cancel_reason == "wrong release"
        assert asked.cancel_requested_at == asked.updated_at == receipt.cancel_requested_at
        assert asked.version == run.version + 1

    async def test_cancel_without_a_live_lease_ends_the_run(self, store: RunStateStore) -> None:
        run = await create(store)
        receipt = await store.update_run(cancel(run, reason="not needed"))
        ended = await store.get_run(run.run_id)
        assert ended.status == receipt.status == RunStatus.CANCELED
        assert ended.finished_at == ended.updated_at
        assert (ended.cancel_reason, ended.message) == ("not needed", "not needed")
        assert ended.fence == run.fence + 1
        assert {step.status for step in ended.steps} == {StepStatus.CANCELED}
        assert ended.version == run.version + 1

    async def test_cancel_of_a_run_its_owner_released_ends_it(self, store: RunStateStore) -> None:
        run = await start_first_step(store, await create_embedded(store))
        run = await write(store, owner_update(run, Changes(), release=True))
        ended = await write(store, cancel(run))
        assert (ended.status, ended.fence) == (RunStatus.CANCELED, run.fence + 1)
        assert ended.steps[0].hosts["web1"].status == HostStatus.UNKNOWN
        assert ended.unconfirmed_hosts == ("web1", "web2")

    async def test_writes_are_judged_by_the_lease_that_readers_see(
        self, store: RunStateStore
    ) -> None:
        """A lease may end at a time, which is then shown, or with its process. A cancel ends a run
        whose owner is lost, and only such a run."""
        run = await create_embedded(store, seconds=self.lease_seconds)
        await self.expire_leases()
        seen = await store.get_run(run.run_id)
        assert seen.owner_lost or seen.lease_expires_at is None
        after = await write(store, cancel(run))
        assert after.status == (RunStatus.CANCELED if seen.owner_lost else RunStatus.RUNNING)
        assert after.cancel_requested_at is not None

    @pytest.mark.parametrize("owned", [True, False])
    async def test_cancel_is_idempotent_by_content(self, store: RunStateStore, owned: bool) -> None:
        run = await (create_embedded(store) if owned else create(store))
        first = await write(store, cancel(run, reason="first"))
        receipt = await store.update_run(cancel(run, reason="second"))
        assert receipt.version == first.version
        assert record_of(await store.get_run(run.run_id)) == record_of(first)

    async def test_cancel_of_an_ended_run_lets_the_end_stand(self, store: RunStateStore) -> None:
        run = await create_embedded(store)
        ended = await write(store, end_run(run))
        receipt = await store.update_run(cancel(run))
        assert (receipt.status, receipt.version) == (RunStatus.SUCCESS, ended.version)
        assert await store.get_run(run.run_id) == ended

    async def test_many_cancels_at_once_are_one_change(self, store: RunStateStore) -> None:
        run = await create_embedded(store)
        receipts, errors = await at_once(store.update_run(cancel(run)) for _ in range(20))
        assert not errors
        assert {receipt.version for receipt in receipts} == {run.version + 1}

    async def test_cancel_never_starves_on_a_busy_run(self, store: RunStateStore) -> None:
        """It has no base version: it is accepted at the first attempt."""
        run = await create_embedded(store)
        stale = cancel(run)
        for number in range(5):
            run = await write(store, change_run(run, message=str(number)))
        await store.update_run(stale)
        assert (await store.get_run(run.run_id)).cancel_requested_at is not None

    async def test_annotation_on_an_ended_run_never_touches_its_end(
        self, store: RunStateStore
    ) -> None:
        ended = await write(store, end_run(await create_embedded(store), RunStatus.FAILED))
        noted = await write(store, annotate(ended, ticket="OPS-1", nested={"found": [1, "—"]}))
        (note,) = noted.annotations
        assert note.data == {"ticket": "OPS-1", "nested": {"found": [1, "—"]}}
        assert (note.by, note.at) == ("ops", noted.updated_at)
        assert noted.version == ended.version + 1
        assert (
            replace(noted, annotations=(), version=ended.version, updated_at=ended.updated_at)
            == ended
        )

    async def test_annotation_sent_again_is_stored_once(self, store: RunStateStore) -> None:
        run = await create_embedded(store)
        note = annotate(run, found="something")
        first = await write(store, note)
        receipt = await store.update_run(note)
        assert receipt.version == first.version
        assert len((await store.get_run(run.run_id)).annotations) == 1

    async def test_annotations_at_once_all_land_in_order(self, store: RunStateStore) -> None:
        run = await create_embedded(store)
        notes = [annotate(run, number=number) for number in range(20)]
        receipts, errors = await at_once(store.update_run(note) for note in notes)
        assert not errors
        noted = await store.get_run(run.run_id)
        assert noted.version == run.version + 20
        # A repeated one gets the run's state of then.
        assert {receipt.version for receipt in receipts} <= set(range(2, 22))
        assert sorted(note.data["number"] for note in noted.annotations) == list(range(20))
        moments = [note.at for note in noted.annotations if note.at]
        assert moments == sorted(set(moments))
        assert moments[-1] == noted.updated_at

    async def test_callback_that_was_given_up_is_noted_and_touches_nothing_else(
        self, store: RunStateStore
    ) -> None:
        """Also under a live lease and on an ended run; the newest one shows."""
        run = await create_embedded(store)
        failure = CallbackFailure(target="hook", event="run.running", error="503", attempts=8)
        first = callback_failed(run.run_id, run.version, unique("dead"), failure)
        noted = await write(store, first)
        error = noted.callback_error
        assert error is not None
        assert (error.target, error.event, error.error, error.attempts, error.at) == (
            "hook",
            "run.running",
            "503",
            8,
            noted.updated_at,
        )
        ended = await write(store, end_run(noted))
        newer = replace(failure, event="run.success")
        second = callback_failed(run.run_id, ended.version, unique("dead"), newer)
        again = await write(store, second)
        assert again.callback_error is not None
        assert again.callback_error.event == "run.success"
        assert (
            replace(again, callback_error=error, version=ended.version, updated_at=ended.updated_at)
            == ended
        )

    async def test_callback_noted_again_is_noted_once(self, store: RunStateStore) -> None:
        run = await create_embedded(store)
        failure = CallbackFailure(target="hook", event="run.running", error="503", attempts=8)
        note = callback_failed(run.run_id, run.version, unique("dead"), failure)
        first = await write(store, note)
        assert (await store.update_run(note)).version == first.version
        assert await store.get_run(run.run_id) == first
        another = callback_failed(run.run_id, first.version, unique("dead"), failure)
        assert (await write(store, another)).version == first.version + 1, "two that look the same"

    async def test_what_is_only_told_changes_the_journal_alone(self, store: RunStateStore) -> None:
        """Also under a live lease and on an ended run, and once if repeated."""
        run = await create_embedded(store)
        for number in range(2):
            told = redelivered(run.run_id, run.version, unique("again"), "ops", callback="c-1")
            after = await write(store, told)
            unchanged = replace(after, version=run.version, updated_at=run.updated_at)
            assert (after.version, unchanged) == (run.version + 1, run)
            assert (await store.update_run(told)).version == after.version
            assert await store.get_run(run.run_id) == after
            run = after if number else await write(store, end_run(after))

    async def test_what_is_only_told_names_its_base(self, store: RunStateStore) -> None:
        run = await create(store)
        told = redelivered(run.run_id, run.version, unique("again"), "ops", callback="c-1")
        await refused(StoreRejected, store.update_run(replace(told, base_version=None)))
        with pytest.raises(VersionConflict):
            await store.update_run(replace(told, base_version=run.version + 1))
        assert await store.get_run(run.run_id) == run

    async def test_poisoned_annotation_is_rejected(self, store: RunStateStore) -> None:
        run = await create(store)
        await refused(StoreRejected, store.update_run(annotate(run, poison="\ud800")))
        assert await store.get_run(run.run_id) == run

    async def test_operators_status_change_raises_the_fence(self, store: RunStateStore) -> None:
        """Writes under the older fence are refused."""
        run = await create(store)
        failed = await write(store, operator_status(run, RunStatus.FAILED))
        assert (failed.status, failed.fence) == (RunStatus.FAILED, run.fence + 1)

    @pytest.mark.parametrize("status", [RunStatus.CANCELED, RunStatus.INTERRUPTED])
    async def test_operators_status_change_under_a_live_lease_is_refused(
        self, store: RunStateStore, status: RunStatus
    ) -> None:
        run = await create_embedded(store)
        await refused(LeaseHeld, store.update_run(operator_status(run, status)))
        with pytest.raises(LeaseHeld):
            await store.update_run(operator_status(run, status, base_version=run.version))
        assert record_of(await store.get_run(run.run_id)) == record_of(run)

    @pytest.mark.parametrize(
        "changes",
        [
            Changes(run=RunChange(message="from outside")),
            Changes(run=RunChange(unconfirmed_hosts=("web1",))),
            Changes(steps={0: StepChange(status=StepStatus.SKIPPED)}),
        ],
        ids=["message", "hosts", "step"],
    )
    async def test_operator_does_not_do_the_owners_work_under_a_live_lease(
        self, store: RunStateStore, changes: Changes
    ) -> None:
        """Only cancel requests, approvals and annotations commute with the owner's writes."""
        run = await create_embedded(store)
        with pytest.raises(LeaseHeld):
            await store.update_run(replace(cancel(run), effect=Effect(changes=changes)))
        assert record_of(await store.get_run(run.run_id)) == record_of(run)

    async def test_operator_may_insist_on_a_base(self, store: RunStateStore) -> None:
        run = await create(store)
        based = replace(annotate(run, seen=1), base_version=run.version)
        first = await write(store, based)
        assert first.version == run.version + 1
        assert (await store.update_run(based)).version == first.version
        assert await store.get_run(run.run_id) == first

    async def test_based_operator_update_that_changes_nothing_writes_nothing(
        self, store: RunStateStore
    ) -> None:
        run = await write(store, cancel(await create_embedded(store)))
        again = replace(cancel(run), base_version=run.version, if_unowned=None)
        assert (await store.update_run(again)).version == run.version
        assert record_of(await store.get_run(run.run_id)) == record_of(run)

    async def test_effect_for_an_unowned_run_is_chosen_by_the_store(
        self, store: RunStateStore
    ) -> None:
        owned, free = await create_embedded(store), await create(store)
        for run, chosen in ((owned, "asked"), (free, "ended")):
            update = replace(
                annotate(run),
                update_id=unique("either"),
                effect=_noting("asked"),
                if_unowned=_noting("ended"),
            )
            assert [note.data for note in (await write(store, update)).annotations] == [
                {"chosen": chosen}
            ]

    async def test_operator_cannot_do_the_work_of_an_owner_that_is_gone(
        self, store: RunStateStore
    ) -> None:
        run = await create(store)
        step = StepChange(status=StepStatus.RUNNING)
        update = owner_update(
            run, Changes(run=RunChange(status=RunStatus.RUNNING), steps={0: step})
        )
        for base in (None, run.version):
            with pytest.raises(InvalidTransition):
                await store.update_run(replace(update, lease=None, base_version=base))
        assert await store.get_run(run.run_id) == run


def _noting(chosen: str) -> Effect:
    note = Annotation(id=unique("note"), data={"chosen": chosen})
    return Effect(changes=Changes(run=RunChange(annotate=(note,))))
