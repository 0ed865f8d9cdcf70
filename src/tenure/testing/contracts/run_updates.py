"""Deltas: applied once, whole, and in an order everybody agrees on."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.model.errors import RunNotFound, StoreRejected, VersionConflict
from tenure.model.snapshot import Counts, ErrorInfo, HostState, ItemState, StepState
from tenure.model.status import HostStatus, RunStatus, StepKind, StepStatus
from tenure.model.update import Changes, HostChange, ItemChange, NewDelivery, StepChange
from tenure.ports.store import RunStateStore
from tenure.testing.contracts.acts import (
    UNKNOWN_RUN_IDS,
    at_once,
    create_embedded,
    record_of,
    start_first_step,
    write,
)
from tenure.testing.contracts.harness import ContractHarness
from tenure.testing.factories import (
    cancel,
    change_run,
    end_run,
    finish_host,
    finish_step,
    new_run,
    owner_update,
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
        """Also when the clock did not: readers order by it."""
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
        with pytest.raises(RunNotFound):
            await store.update_run(cancel(new_run(run_id=run_id).snapshot))
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
        """An operator's note came first: the owner writes its delta again without reading."""
        run = await create_embedded(store)
        await store.update_run(cancel(run))
        with pytest.raises(VersionConflict) as conflict:
            await store.update_run(start_step(run))
        rebased = replace(
            start_step(run), base_version=conflict.value.version, update_id=unique("rebased")
        )
        after = await write(store, rebased)
        assert after.version == 3
        assert after.steps[0].status == StepStatus.RUNNING
        assert after.cancel_requested_at == conflict.value.cancel_requested_at is not None

    async def test_base_from_the_future_is_a_conflict(self, store: RunStateStore) -> None:
        run = await create_embedded(store)
        with pytest.raises(VersionConflict):
            await store.update_run(owner_update(run, Changes(), base_version=run.version + 1))

    async def test_other_update_id_on_an_old_base_is_a_conflict(self, store: RunStateStore) -> None:
        """The very same words under another id are another decision."""
        run = await create_embedded(store)
        update = change_run(run, message="same words")
        await store.update_run(update)
        with pytest.raises(VersionConflict):
            await store.update_run(replace(update, update_id=unique("other")))

    @pytest.mark.parametrize("fields", POISONS, ids=ascii)
    async def test_poisoned_update_is_rejected_without_a_trace(
        self, store: RunStateStore, fields: dict[str, Any]
    ) -> None:
        run = await create_embedded(store)
        with pytest.raises(StoreRejected):
            await store.update_run(change_run(run, **fields))
        assert record_of(await store.get_run(run.run_id)) == record_of(run)
        assert (await write(store, change_run(run, message="goes on"))).version == 2

    async def test_poisoned_host_variables_are_rejected(self, store: RunStateStore) -> None:
        run = await start_first_step(store, await create_embedded(store))
        with pytest.raises(StoreRejected):
            await store.update_run(finish_host(run, vars={"A": "\ud800"}))
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
