"""``BatchUpdates``: many updates in one commit; ``LastRecords``: what their writer is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.model.errors import (
    InvalidRunId,
    InvalidTransition,
    LeaseHeld,
    LeaseLost,
    RunExists,
    RunNotFound,
    StoreRejected,
    TenureError,
    VersionConflict,
)
from tenure.model.outbox import GiveUp
from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import HostStatus, RunStatus, StepKind, StepStatus
from tenure.model.update import Changes, HostChange, ItemChange, Receipt, StepChange, Write
from tenure.ports.last_records import LastRecords
from tenure.ports.store import BatchUpdates
from tenure.testing.contracts.acts import UNKNOWN_RUN_IDS, create, create_embedded, record_of, write
from tenure.testing.contracts.harness import BatchingStore, ContractHarness, RememberingStore
from tenure.testing.contracts.run_records import LIVES, FollowedRun, Life
from tenure.testing.factories import (
    HOOK,
    annotate,
    cancel,
    change_run,
    embedded_run,
    end_run,
    finish_host,
    finish_step,
    new_run,
    operator_status,
    owner_update,
    planned_steps,
    start_step,
    unique,
)


class BatchUpdatesContract(ContractHarness):
    """``BatchUpdates``: many writes in one commit, each judged as if it were alone."""

    async def test_store_is_a_batching_store(self, store: BatchingStore) -> None:
        assert isinstance(store, BatchUpdates)

    async def test_each_write_has_its_outcome_in_order(self, store: BatchingStore) -> None:
        first, second = await create_embedded(store), await create_embedded(store, "owner-b")
        created = embedded_run("owner-c")
        writes: list[Write] = [start_step(first), created, end_run(second), new_run()]
        outcomes = await store.update_runs(writes)
        receipts = [_accepted(outcome) for outcome in outcomes]
        assert [receipt.version for receipt in receipts] == [2, 1, 2, 1]
        assert [receipt.status for receipt in receipts] == [
            "running",
            "running",
            "success",
            "queued",
        ]
        for receipt in receipts:
            run = await store.get_run(receipt.run_id)
            assert (run.version, run.fence, run.updated_at) == (
                receipt.version,
                receipt.fence,
                receipt.updated_at,
            )

    async def test_empty_batch_has_no_outcomes(self, store: BatchingStore) -> None:
        assert await store.update_runs([]) == []

    async def test_refused_write_never_harms_another(self, store: BatchingStore) -> None:
        """Each answer is the very error that the single call would raise."""
        runs = [await create_embedded(store, f"owner-{number}") for number in range(6)]
        ended = await write(store, end_run(runs[5]))
        fine = [await create_embedded(store, f"fine-{number}") for number in range(6)]
        faults: list[tuple[Write, type[TenureError]]] = [
            (start_step(replace(runs[0], fence=99)), LeaseLost),
            (operator_status(runs[1], RunStatus.FAILED), LeaseHeld),
            (replace(start_step(runs[2]), base_version=99), VersionConflict),
            (change_run(runs[3], status=RunStatus.QUEUED), InvalidTransition),
            *((cancel(new_run(run_id=name).snapshot), RunNotFound) for name in UNKNOWN_RUN_IDS),
            (new_run(run_id=ended.run_id), RunExists),
            (_with_bad_id(), InvalidRunId),
            (change_run(runs[4], message="\ud800"), StoreRejected),
        ]
        writes: list[Write] = [fault for fault, _ in faults]
        for place, run in enumerate(fine):
            writes.insert(place * 2, start_step(run))
        outcomes = await store.update_runs(writes)
        wrong = [outcome for outcome in outcomes if isinstance(outcome, TenureError)]
        assert [type(error) for error in wrong] == [error for _, error in faults]
        assert len(outcomes) - len(wrong) == len(fine)
        for run in fine:
            assert (await store.get_run(run.run_id)).version == 2
        for run in runs[:5]:
            assert record_of(await store.get_run(run.run_id)) == record_of(run)

    async def test_conflict_in_a_batch_carries_the_facts(self, store: BatchingStore) -> None:
        run = await create_embedded(store)
        asked = await write(store, cancel(run))
        (outcome,) = await store.update_runs([start_step(run)])
        assert isinstance(outcome, VersionConflict)
        assert (outcome.version, outcome.fence, outcome.status) == (2, 1, RunStatus.RUNNING)
        assert outcome.cancel_requested_at == asked.cancel_requested_at

    async def test_poisoned_values_are_found_and_the_rest_applied(
        self, store: BatchingStore
    ) -> None:
        """Wherever they stand; a data error must never fail a batch for ever."""
        runs = [await create_embedded(store, f"owner-{number}") for number in range(16)]
        poisoned = {0, 7, 8, 15}
        writes: list[Write] = [
            change_run(run, message="\ud800" if number in poisoned else f"fine {number}")
            for number, run in enumerate(runs)
        ]
        writes.append(new_run(run_id="poisoned", vars={"key": "\udc00"}))
        writes.append(new_run(run_id="not-poisoned"))
        *updated, bad, good = await store.update_runs(writes)
        for number, (run, outcome) in enumerate(zip(runs, updated, strict=True)):
            if number in poisoned:
                assert isinstance(outcome, StoreRejected)
                assert outcome.run_id == run.run_id
                assert record_of(await store.get_run(run.run_id)) == record_of(run)
            else:
                assert _accepted(outcome).version == 2
                assert (await store.get_run(run.run_id)).message == f"fine {number}"
        assert isinstance(bad, StoreRejected)
        assert _accepted(good).version == 1

    async def test_second_write_of_a_run_in_one_batch_is_rejected(
        self, store: BatchingStore
    ) -> None:
        run, other = await create_embedded(store), await create_embedded(store, "owner-b")
        first = change_run(run, message="first")
        outcomes = await store.update_runs(
            [first, change_run(run, message="second"), start_step(other), first]
        )
        assert [type(outcome) for outcome in outcomes] == [
            Receipt,
            StoreRejected,
            Receipt,
            StoreRejected,
        ]
        now = await store.get_run(run.run_id)
        assert (now.message, now.version) == ("first", 2)

    async def test_run_created_twice_in_one_batch_is_created_once(
        self, store: BatchingStore
    ) -> None:
        first, second = (new_run(run_id="twice-in-one", vars={"n": n}) for n in (1, 2))
        outcomes = await store.update_runs([first, second])
        assert [type(outcome) for outcome in outcomes] == [Receipt, StoreRejected]
        assert (await store.get_run("twice-in-one")).vars == {"n": 1}

    async def test_refused_write_still_counts_as_the_one_of_its_run(
        self, store: BatchingStore
    ) -> None:
        run = await create_embedded(store)
        stale = replace(start_step(run), base_version=99)
        outcomes = await store.update_runs([stale, change_run(run, message="second")])
        assert [type(outcome) for outcome in outcomes] == [VersionConflict, StoreRejected]
        assert (await store.get_run(run.run_id)).version == 1

    async def test_batch_sent_again_gets_the_first_answers(self, store: BatchingStore) -> None:
        run, other = await create_embedded(store), await create_embedded(store, "owner-b")
        writes: list[Write] = [start_step(run), end_run(other), new_run()]
        first = [_accepted(outcome).version for outcome in await store.update_runs(writes)]
        again = [_accepted(outcome).version for outcome in await store.update_runs(writes)]
        assert again == first == [2, 2, 1]
        assert (await store.get_run(run.run_id)).version == 2

    async def test_batches_over_the_same_runs_at_once(self, store: BatchingStore) -> None:
        """Sent in opposite orders: nothing deadlocks, and each run takes exactly one of them."""
        runs = [await create_embedded(store, f"owner-{number}") for number in range(20)]

        async def send(name: str, order: list[RunSnapshot]) -> dict[str, object]:
            writes = [change_run(run, message=name) for run in order]
            outcomes = await store.update_runs(writes)
            return {run.run_id: outcome for run, outcome in zip(order, outcomes, strict=True)}

        answers = await asyncio.gather(
            *(send(f"batch {number}", runs[:: 1 if number % 2 else -1]) for number in range(6))
        )
        for run in runs:
            mine = [answer[run.run_id] for answer in answers]
            assert sum(isinstance(outcome, Receipt) for outcome in mine) == 1
            assert sum(isinstance(outcome, VersionConflict) for outcome in mine) == 5
            assert (await store.get_run(run.run_id)).version == 2

    async def test_large_batch_is_applied_whole(self, store: BatchingStore) -> None:
        news = [embedded_run(f"owner-{number}") for number in range(300)]
        created = await store.update_runs(news)
        assert {_accepted(outcome).version for outcome in created} == {1}
        runs = [await store.get_run(new.snapshot.run_id) for new in news]
        updated = await store.update_runs([start_step(run) for run in runs])
        assert {_accepted(outcome).version for outcome in updated} == {2}

    async def test_operators_and_owners_share_a_batch(self, store: BatchingStore) -> None:
        owned, free = await create_embedded(store), await create(store)
        update_id = unique("same-id-for-two-runs")
        outcomes = await store.update_runs(
            [
                replace(cancel(owned), update_id=update_id),
                replace(cancel(free), update_id=update_id),
            ]
        )
        assert [_accepted(outcome).status for outcome in outcomes] == ["running", "canceled"]

    async def test_what_is_no_write_at_all_harms_no_other(self, store: BatchingStore) -> None:
        run = await create_embedded(store)
        nameless = replace(start_step(run), run_id=["x"])
        writes: list[Any] = [None, start_step(run), nameless, new_run()]
        outcomes = await store.update_runs(writes)
        assert [type(outcome) for outcome in outcomes] == [
            StoreRejected,
            Receipt,
            StoreRejected,
            Receipt,
        ]


def _accepted(outcome: Receipt | TenureError) -> Receipt:
    assert isinstance(outcome, Receipt), outcome
    return outcome


def _with_bad_id() -> Write:
    new = new_run()
    return replace(new, snapshot=replace(new.snapshot, run_id="bad id"))


# ``LastRecords``: what a process is told of a run that it has just ended is what it would read.


class LastRecordsContract(ContractHarness):
    """For a client whose calls were answered: a call sent again leaves no record at hand."""

    swept = False

    async def test_store_has_last_records(self, store: RememberingStore) -> None:
        assert isinstance(store, LastRecords)

    async def test_record_of_a_success_is_what_a_reader_finds(
        self, store: RememberingStore
    ) -> None:
        run = await _with_all_there_can_be(store)
        run = await write(store, end_run(run))
        last = store.last_record(run.run_id)
        assert last is not None
        assert record_of(last) == record_of(run)

    @pytest.mark.parametrize("status", ["failed", "canceled", "interrupted"])
    async def test_record_of_a_run_cut_short_is_what_a_reader_finds(
        self, store: RememberingStore, status: str
    ) -> None:
        run = await create_embedded(store, steps=planned_steps(3), vars={"release": "1.4"})
        for update in (start_step, finish_step):
            run = await write(store, update(run, 0))
        run = await write(store, start_step(run, 1))
        run = await write(store, finish_host(run, 1, "web1"))
        run = await write(store, end_run(run, RunStatus(status)))
        last = store.last_record(run.run_id)
        assert last is not None
        assert record_of(last) == record_of(run)

    @pytest.mark.parametrize("life", LIVES.values(), ids=LIVES)
    async def test_record_is_whole_whatever_happened_before(
        self, store: RememberingStore, life: Life
    ) -> None:
        """As it was when it ended: somebody may have noted something since."""
        followed = FollowedRun(store)
        await life(followed)
        last = store.last_record(followed.seen[-1].run_id)
        assert last is None or record_of(last) in [record_of(run) for run in followed.seen]

    async def test_record_is_given_away(self, store: RememberingStore) -> None:
        run = await create_embedded(store)
        await store.update_run(end_run(run, RunStatus.FAILED))
        assert store.last_record(run.run_id) is not None
        assert store.last_record(run.run_id) is None

    @pytest.mark.parametrize("run_id", UNKNOWN_RUN_IDS)
    async def test_unknown_run_has_none(self, store: RememberingStore, run_id: str) -> None:
        assert store.last_record(run_id) is None

    async def test_run_that_goes_on_has_none(self, store: RememberingStore) -> None:
        run = await create_embedded(store)
        await write(store, start_step(run))
        assert store.last_record(run.run_id) is None

    async def test_what_an_operator_said_before_the_end_is_not_missing(
        self, store: RememberingStore
    ) -> None:
        run = await create_embedded(store)
        run = await write(store, annotate(run, found="something"))
        run = await write(store, end_run(run, RunStatus.FAILED))
        last = store.last_record(run.run_id)
        assert last is None or record_of(last) == record_of(run)

    async def test_callback_given_up_before_the_end_is_not_missing(
        self, store: RememberingStore
    ) -> None:
        run = await create_embedded(store, callbacks=(HOOK,))
        (delivery,) = await store.claim_deliveries("relay")
        await store.settle_delivery(delivery.id, "relay", GiveUp(error="nobody is there"))
        run = await write(store, end_run(run, RunStatus.FAILED))
        last = store.last_record(run.run_id)
        assert run.callback_error is not None
        assert last is None or record_of(last) == record_of(run)

    async def test_run_that_somebody_else_ended_has_none(self, store: RememberingStore) -> None:
        run = await create_embedded(store, seconds=self.lease_seconds)
        await self.expire_leases()
        await write(store, operator_status(run, RunStatus.INTERRUPTED))
        assert store.last_record(run.run_id) is None


async def _with_all_there_can_be(store: RememberingStore) -> RunSnapshot:
    """A loop, values, words, an added step; all of it at its end."""
    run = await create_embedded(
        store, steps=planned_steps(2), vars={"release": "1.4"}, labels={"team": "web"}
    )
    items = {0: ItemChange(status=HostStatus.RUNNING), 1: ItemChange(status=HostStatus.RUNNING)}
    loop = StepChange(
        status=StepStatus.RUNNING,
        message="rolling",
        hosts={"web1": HostChange(status=HostStatus.RUNNING, attempts=1, items=items)},
    )
    run = await write(store, owner_update(run, Changes(steps={0: loop})))
    items = {n: ItemChange(status=HostStatus.SUCCESS, exit_code=0, stdout="ok") for n in items}
    done = HostChange(status=HostStatus.SUCCESS, vars={"port": 80}, changed=True, items=items)
    run = await write(
        store, owner_update(run, Changes(steps={0: StepChange(hosts={"web1": done})}))
    )
    run = await write(store, finish_step(run, 0))
    run = await write(store, start_step(run, 1))
    run = await write(store, finish_step(run, 1))
    return await _with_handler(store, run)


async def _with_handler(store: RememberingStore, run: RunSnapshot) -> RunSnapshot:
    handler = StepState(
        index=2,
        name="reload",
        kind=StepKind.HANDLER,
        action="cmd.run",
        notified_by=0,
        hosts={"web1": HostState(), "web2": HostState()},
    )
    begun = StepChange(
        plan=handler,
        status=StepStatus.RUNNING,
        hosts={"web1": HostChange(status=HostStatus.RUNNING)},
    )
    known = replace(run, steps=(*run.steps, handler))
    run = await write(store, owner_update(known, Changes(steps={2: begun})))
    return await write(store, finish_step(run, 2))
