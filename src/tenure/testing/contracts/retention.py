"""``Retention`` and ``Upkeep``: old runs are removed completely, and nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.model.errors import DeliveryNotFound, RunNotFound
from tenure.model.outbox import Delivered, Delivery, GiveUp, Outcome, RetryLater
from tenure.model.query import RunFilter
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import TERMINAL_RUN, RunStatus
from tenure.model.update import Changes
from tenure.ports.leases import LeaseStore
from tenure.ports.store import (
    CensusTaking,
    Definitions,
    EventLog,
    LogKey,
    LogListing,
    LogStore,
    Retention,
    RunStateStore,
    StoreReport,
    Upkeep,
)
from tenure.testing.contracts.acts import (
    at_once,
    claim,
    create,
    create_embedded,
    lease_of,
    refused,
    start_first_step,
    write,
)
from tenure.testing.contracts.harness import (
    ContractHarness,
    ForgettingCallingStore,
    ForgettingLoggingStore,
    ForgettingStore,
    KeptUpStore,
)
from tenure.testing.factories import (
    HOOK,
    annotate,
    change_run,
    end_run,
    fencing_of,
    lease_request,
    new_run,
    owner_update,
    unique,
)

Question = Callable[[], Awaitable[Any]]


class ForgettingHarness(ContractHarness):
    async def prune_ended(self, store: Retention, *, limit: int = 100) -> int:
        await self.pass_time(0.01)
        return await store.prune_runs(0.0, limit=limit)


class RetentionContract(ForgettingHarness):
    """Whatever the store has of a run beside its record (journal, definition …) is asked for too.

    No test counts what one call removed: see ``RetentionCountsContract``.
    """

    async def test_store_forgets(self, store: ForgettingStore) -> None:
        assert isinstance(store, Retention)

    async def test_old_run_is_forgotten_whole(self, store: ForgettingStore) -> None:
        run = await ended(store, labels={"team": "web"}, definition="name: old")
        await self.prune_ended(store)
        for question in questions(store, run.run_id):
            await refused(RunNotFound, question())
        for where in (RunFilter(), RunFilter(labels={"team": "web"}), _like(run)):
            assert (await store.list_runs(where)).items == ()
        if isinstance(store, CensusTaking):
            assert set((await store.take_census()).runs.values()) == {0}

    @pytest.mark.parametrize("status", sorted(TERMINAL_RUN))
    async def test_every_end_is_an_end(self, store: ForgettingStore, status: RunStatus) -> None:
        await write(store, end_run(await create_embedded(store), status))
        await self.prune_ended(store)
        assert (await store.list_runs()).items == ()

    async def test_run_that_has_not_ended_stays(self, store: ForgettingStore) -> None:
        queued = await create(store)
        running = await start_first_step(store, await create_embedded(store))
        let_go = await create_embedded(store)
        let_go = await write(store, owner_update(let_go, Changes(), release=True))
        await ended(store)
        await self.prune_ended(store)
        for run in (queued, running, let_go):
            assert await store.get_run(run.run_id) == run

    async def test_run_that_ended_less_long_ago_stays(self, store: ForgettingStore) -> None:
        """By the store's clock."""
        await ended(store)
        await self.expire_leases()
        run = await ended(store)
        await store.prune_runs(self.lease_seconds)
        assert await _ids(store) == [run.run_id]
        await self.expire_leases()
        await store.prune_runs(self.lease_seconds)
        assert await _ids(store) == []

    @pytest.mark.parametrize("age", [-1.0, float("nan"), float("inf")])
    async def test_age_that_no_run_can_have_is_refused(
        self, store: ForgettingStore, age: float
    ) -> None:
        run = await ended(store)
        await self.pass_time(0.01)
        with pytest.raises(ValueError, match="ended from 0 seconds"):
            await store.prune_runs(age)
        assert await store.get_run(run.run_id) == run

    async def test_the_first_to_end_goes_first(self, store: ForgettingStore) -> None:
        begun = [await create_embedded(store) for _ in range(5)]
        left = []
        for number in (3, 0, 4, 2, 1):
            left.append(await write(store, end_run(begun[number])))
            await self.pass_time(0.01)
        while left:
            await self.prune_ended(store, limit=1)
            there = set(await _ids(store))
            assert len(there) < len(left)
            left = left[len(left) - len(there) :]
            assert there == {run.run_id for run in left}

    async def test_others_stay_exactly_as_they_are(self, store: ForgettingStore) -> None:
        shared: dict[str, Any] = {"labels": {"team": "web"}, "definition": "name: shared"}
        old = await ended(store, **shared)
        await self.expire_leases()
        stays = [await ended(store, **shared), await create(store, **shared)]
        before = [await _all_of(store, run) for run in stays]
        await store.prune_runs(self.lease_seconds)
        assert [await _all_of(store, run) for run in stays] == before
        await refused(RunNotFound, store.get_run(old.run_id))

    async def test_forgotten_run_takes_no_writes(self, store: ForgettingStore) -> None:
        run = await create_embedded(store)
        over = await write(store, end_run(run))
        await self.prune_ended(store)
        for update in (annotate(over), change_run(run, message="late"), end_run(run)):
            await refused(RunNotFound, store.update_run(update))
        if isinstance(store, LeaseStore):
            await refused(RunNotFound, store.claim_run(run.run_id, lease_request()))
            (renewal,) = await store.renew_leases([lease_of(run)], 30.0)
            assert not renewal.ok

    async def test_id_may_be_used_again_and_nothing_of_the_old_run_shows(
        self, store: ForgettingStore
    ) -> None:
        old = await ended(store, labels={"age": "old"}, definition="name: old")
        await self.prune_ended(store)
        new = new_run(run_id=old.run_id, definition="name: new")
        await store.create_run(new)
        run = await store.get_run(old.run_id)
        assert (run.version, run.status, run.labels) == (1, RunStatus.QUEUED, {})
        assert not any(step.started_at for step in run.steps)
        assert (await store.list_runs(RunFilter(labels={"age": "old"}))).items == ()
        if isinstance(store, Definitions):
            assert await store.get_definition(run.run_id) == "name: new"
        if isinstance(store, EventLog):
            assert {event.version for event in await store.read_events(run.run_id)} == {1}

    async def test_pages_go_on_where_they_were(self, store: ForgettingStore) -> None:
        stay = [(await create(store)).run_id for _ in range(2)]
        for _ in range(3):
            await ended(store)
        first = await store.list_runs(limit=1)
        await self.prune_ended(store)
        await create(store)
        rest = await store.list_runs(cursor=first.cursor)
        assert [run.run_id for run in rest.items] == stay[::-1]

    async def test_reader_sees_the_whole_run_or_none(self, store: ForgettingStore) -> None:
        runs = [await ended(store, definition="name: old") for _ in range(5)]
        asked = [question for run in runs for question in questions(store, run.run_id)]
        whole = [await question() for question in asked]
        results, errors = await at_once(
            [self.prune_ended(store), *(_seen(question) for question in asked)]
        )
        assert not errors
        for seen, known in zip(results[1:], whole, strict=True):
            assert seen is None or seen == known

    async def test_several_may_prune_at_once(self, store: ForgettingStore) -> None:
        stays = await create(store)
        for _ in range(10):
            await ended(store)
        _, errors = await at_once(self.prune_ended(store) for _ in range(5))
        assert not errors
        assert await _ids(store) == [stays.run_id]


class RetentionCountsContract(ForgettingHarness):
    """Counts of what a call pruned; without faults, since a call whose answer was lost has pruned
    already."""

    swept = False

    async def test_answer_is_how_many_were_removed(self, store: ForgettingStore) -> None:
        for _ in range(3):
            await ended(store)
        await create(store)
        assert await self.prune_ended(store) == 3
        assert await self.prune_ended(store) == 0

    @pytest.mark.parametrize(("limit", "removed"), [(2, 2), (1, 1), (5, 3), (0, 0), (-1, 0)])
    async def test_never_more_than_the_limit(
        self, store: ForgettingStore, limit: int, removed: int
    ) -> None:
        for _ in range(3):
            await ended(store)
        assert await self.prune_ended(store, limit=limit) == removed
        assert len(await _ids(store)) == 3 - removed

    async def test_run_pruned_by_several_at_once_is_counted_once(
        self, store: ForgettingStore
    ) -> None:
        for _ in range(10):
            await ended(store)
        counts, errors = await at_once(self.prune_ended(store) for _ in range(5))
        assert not errors
        assert sum(counts) == 10


async def ended(store: RunStateStore, **fields: Any) -> RunSnapshot:
    """A run with steps and output that has ended."""
    run = await start_first_step(store, await create_embedded(store, **fields))
    return await write(store, end_run(run, RunStatus.FAILED))


def questions(store: Any, run_id: str) -> Iterator[Question]:
    """Answers of the store to every question about a run."""
    yield lambda: store.get_run(run_id)
    if isinstance(store, EventLog):
        yield lambda: store.read_events(run_id)
    if isinstance(store, Definitions):
        yield lambda: store.get_definition(run_id)
    if isinstance(store, LogStore):
        yield lambda: store.read(run_id, LogKey(step=0, host="web1", stream="stdout"))
    if isinstance(store, LogListing):
        yield lambda: store.list_logs(run_id)


async def _all_of(store: ForgettingStore, run: RunSnapshot) -> list[Any]:
    return [await question() for question in questions(store, run.run_id)]


async def _seen(question: Question) -> Any:
    try:
        return await question()
    except RunNotFound:
        return None


async def _ids(store: ForgettingStore) -> list[str]:
    return [run.run_id for run in (await store.list_runs()).items]


def _like(run: RunSnapshot) -> RunFilter:
    return RunFilter(
        statuses=frozenset({run.status}), workflow_name=run.workflow_name, queue=run.queue
    )


class OutboxRetentionContract(ForgettingHarness):
    """``Retention`` beside an ``Outbox``: a callback that waits keeps its run."""

    async def test_run_with_a_callback_to_be_sent_stays(
        self, store: ForgettingCallingStore
    ) -> None:
        """And does not count towards the limit."""
        run = await ended(store, callbacks=(HOOK,))
        await self.pass_time(0.01)
        await ended(store)
        await self.prune_ended(store, limit=1)
        assert await store.get_run(run.run_id) == run
        assert [one.run_id for one in (await store.list_runs()).items] == [run.run_id]

    async def test_run_stays_while_the_last_callback_is_being_sent(
        self, store: ForgettingCallingStore
    ) -> None:
        run = await ended(store, callbacks=(HOOK,))
        await _settle(store, Delivered())
        held = await _claim_next(store)
        await self.prune_ended(store)
        sent = await store.settle_delivery(held.id, held.token or "", Delivered())
        assert sent.run_id == run.run_id

    async def test_run_stays_while_a_callback_is_to_be_tried_again(
        self, store: ForgettingCallingStore
    ) -> None:
        run = await ended(store, callbacks=(HOOK,))
        await _settle(store, Delivered())
        await _settle(store, RetryLater(delay=600, error="503"))
        await self.prune_ended(store)
        assert await store.get_run(run.run_id) == run

    @pytest.mark.parametrize("outcome", [Delivered(), GiveUp("410 Gone")], ids=["sent", "dead"])
    async def test_settled_callbacks_go_with_their_run(
        self, store: ForgettingCallingStore, outcome: Outcome
    ) -> None:
        run = await ended(store, callbacks=(HOOK,))
        settled = [await _settle(store, outcome) for _ in range(2)]
        await self.prune_ended(store)
        await refused(RunNotFound, store.get_run(run.run_id))
        assert (await store.list_deliveries()).items == ()
        assert (await store.list_deliveries(run_id=run.run_id)).items == ()
        for delivery in settled:
            await refused(DeliveryNotFound, store.requeue_delivery(delivery.id))
            with pytest.raises(DeliveryNotFound):
                await store.settle_delivery(delivery.id, "any-token", Delivered())

    async def test_callback_sent_again_keeps_its_run(self, store: ForgettingCallingStore) -> None:
        run = await ended(store, callbacks=(HOOK,))
        settled = [await _settle(store, GiveUp("410 Gone")) for _ in range(2)]
        await store.requeue_delivery(settled[0].id)
        await self.prune_ended(store)
        assert (await store.get_run(run.run_id)).callback_error is not None
        assert (await _claim_next(store)).id == settled[0].id

    async def test_callbacks_of_others_stay_and_pages_go_on(
        self, store: ForgettingCallingStore
    ) -> None:
        stays = await create(store, callbacks=(HOOK,))
        waiting = (await store.list_deliveries(run_id=stays.run_id)).items
        run = await ended(store, callbacks=(HOOK,))
        first = await store.list_deliveries(limit=1)
        for held in await store.claim_deliveries(unique("token")):
            if held.run_id == run.run_id:
                await store.settle_delivery(held.id, held.token or "", Delivered())
        await _settle(store, Delivered())
        await self.prune_ended(store)
        rest = (await store.list_deliveries(cursor=first.cursor)).items
        assert [one.id for one in rest] == [one.id for one in waiting]


async def _claim_next(store: ForgettingCallingStore) -> Delivery:
    (held,) = await store.claim_deliveries(unique("token"), limit=1, seconds=3600)
    return held


async def _settle(store: ForgettingCallingStore, outcome: Outcome) -> Delivery:
    held = await _claim_next(store)
    return await store.settle_delivery(held.id, held.token or "", outcome)


OUT = LogKey(step=0, host="web1", stream="stdout")


class OutputRetentionContract(ForgettingHarness):
    """``Retention`` beside a ``LogStore``: output goes with its run."""

    async def test_output_goes_with_its_run(self, store: ForgettingLoggingStore) -> None:
        run = await _printed(store, unique("run"), b"old")
        await self.prune_ended(store)
        await refused(RunNotFound, store.read(run.run_id, OUT))
        await refused(RunNotFound, store.append(run.run_id, fencing_of(run), OUT, 0, b"late"))

    async def test_output_of_others_stays(self, store: ForgettingLoggingStore) -> None:
        run = await _printed(store, unique("run"), b"old")
        await self.expire_leases()
        stays = await _printed(store, unique("run"), b"kept")
        await store.prune_runs(self.lease_seconds)
        assert (await store.read(stays.run_id, OUT)).data == b"kept"
        await refused(RunNotFound, store.read(run.run_id, OUT))

    async def test_later_run_of_the_same_id_begins_with_none(
        self, store: ForgettingLoggingStore
    ) -> None:
        old = await _printed(store, unique("run"), b"old")
        await self.prune_ended(store)
        run = await claim(store, (await create(store, run_id=old.run_id)).run_id)
        assert (await store.read(run.run_id, OUT)).size == 0
        assert await store.append(run.run_id, fencing_of(run), OUT, 0, b"new") == 3
        assert (await store.read(run.run_id, OUT)).data == b"new"


async def _printed(store: ForgettingLoggingStore, run_id: str, data: bytes) -> RunSnapshot:
    run = await claim(store, (await create(store, run_id=run_id)).run_id)
    await store.append(run.run_id, fencing_of(run), OUT, 0, data)
    return await write(store, end_run(run, RunStatus.FAILED))


class UpkeepContract(ContractHarness):
    """``Upkeep``: the store's report about itself; what damage looks like is up to the store."""

    async def test_store_can_be_looked_after(self, store: KeptUpStore) -> None:
        assert isinstance(store, Upkeep)

    async def test_new_store_is_sound_and_up_to_date(self, store: KeptUpStore) -> None:
        report = await store.check_store()
        assert report.problems == ()
        assert report.schema == report.newest_schema
        assert report.place
        assert report.runs in (0, None)

    async def test_store_at_work_is_sound(self, store: KeptUpStore) -> None:
        run = await create_embedded(store, callbacks=(HOOK,), definition="name: deploy")
        await write(store, end_run(await start_first_step(store, run), RunStatus.FAILED))
        await start_first_step(store, await create_embedded(store, labels={"team": "web"}))
        await create(store)
        report = await store.check_store()
        assert report.problems == ()
        assert report.runs in (3, None)

    async def test_looking_changes_nothing(self, store: KeptUpStore) -> None:
        run = await create_embedded(store)
        await store.check_store()
        assert await store.get_run(run.run_id) == run

    async def test_migrating_what_is_up_to_date_changes_nothing(self, store: KeptUpStore) -> None:
        run = await create_embedded(store)
        before = await store.check_store()
        after = await store.migrate_store()
        assert _comparable(after) == _comparable(before)
        assert await store.get_run(run.run_id) == run


def _comparable(report: StoreReport) -> StoreReport:
    """Without the size on disk."""
    return replace(report, bytes_used=None)
