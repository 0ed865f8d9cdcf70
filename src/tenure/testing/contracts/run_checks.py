"""The order of checks: an update with two faults is answered for the earlier one.

Each scenario makes an update that breaks two rules which stand one after the other in the
order, and says which answer proves that the earlier was asked first. Why the order matters is
told in ``tenure.model.judge``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from tenure.model.errors import (
    InvalidTransition,
    LeaseHeld,
    LeaseLost,
    RunNotFound,
    TenureError,
    VersionConflict,
)
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.model.update import Changes, Fencing, Update
from tenure.ports.store import RunStateStore
from tenure.testing.contracts.acts import create, create_embedded, record_of, write
from tenure.testing.contracts.harness import ContractHarness
from tenure.testing.factories import (
    annotate,
    cancel,
    change_run,
    end_run,
    new_run,
    operator_status,
    owner_update,
    start_run,
    start_step,
    unique,
)


class Case(NamedTuple):
    update: Update
    error: type[TenureError] | None = None
    """What is raised; ``None``: accepted, and ``version`` is what the receipt says."""
    version: int = 0


Scenario = Callable[[RunStateStore], Awaitable[Case]]


async def _taken_away(store: RunStateStore) -> tuple[RunSnapshot, Update]:
    """An owner whose applied intent is known to the store, and whose fence is no more."""
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
    """Told apart by the version: the first answer's, not the present one."""
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
    """The last owner agrees with what it has said already, in another update."""
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
        with pytest.raises(LeaseHeld) as held:
            await store.update_run(operator_status(run, RunStatus.FAILED))
        assert held.value.owner_id == "owner-a"

    async def test_refused_update_leaves_no_trace(self, store: RunStateStore) -> None:
        run = await write(store, start_step(await create_embedded(store)))
        for refused in (
            start_step(replace(run, fence=run.fence + 1)),
            operator_status(run, RunStatus.INTERRUPTED),
            replace(change_run(run, message="late"), base_version=1, update_id=unique("late")),
            change_run(run, status=RunStatus.QUEUED, message="never"),
            change_run(run, status=RunStatus.SUCCESS),
        ):
            with pytest.raises((LeaseLost, LeaseHeld, VersionConflict, InvalidTransition)):
                await store.update_run(refused)
            assert record_of(await store.get_run(run.run_id)) == record_of(run)
