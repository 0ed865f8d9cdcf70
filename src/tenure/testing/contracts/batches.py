"""``BatchUpdates``: many updates in one commit."""

from __future__ import annotations

import asyncio
from typing import Any

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
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.model.update import Receipt, Write
from tenure.ports.store import BatchUpdates
from tenure.testing.contracts.acts import UNKNOWN_RUN_IDS, create, create_embedded, record_of, write
from tenure.testing.contracts.harness import BatchingStore, ContractHarness
from tenure.testing.factories import (
    cancel,
    change_run,
    embedded_run,
    end_run,
    new_run,
    operator_status,
    start_step,
    unique,
)


class BatchUpdatesContract(ContractHarness):
    """``BatchUpdates``: many writes in one commit, each decided independently."""

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
        """Each error equals that of the single call."""
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
        """In opposite orders, without deadlock; each run takes exactly one of them."""
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
