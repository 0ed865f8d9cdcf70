"""Updates without a lease: people and programs that own nothing."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenure.model.compose import callback_failed, redelivered
from tenure.model.errors import InvalidTransition, LeaseHeld, StoreRejected, VersionConflict
from tenure.model.snapshot import Annotation
from tenure.model.status import HostStatus, RunStatus, StepStatus
from tenure.model.update import CallbackFailure, Changes, Effect, RunChange, StepChange
from tenure.ports.store import RunStateStore
from tenure.testing.contracts.acts import (
    at_once,
    create,
    create_embedded,
    record_of,
    start_first_step,
    write,
)
from tenure.testing.contracts.harness import ContractHarness
from tenure.testing.factories import (
    annotate,
    cancel,
    change_run,
    end_run,
    operator_status,
    owner_update,
    unique,
)


class OperatorUpdates(ContractHarness):
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
        """It may end at an hour, which is then shown, or with the process that has it. Where an
        owner is called lost, a cancel waits for nobody; where it is not, nothing is ended for it.
        """
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
        """Any base: however often the owner writes, the request gets in at the first try."""
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
        """They commute with each other and with the owner: none needs to try again."""
        run = await create_embedded(store)
        notes = [annotate(run, number=number) for number in range(20)]
        receipts, errors = await at_once(store.update_run(note) for note in notes)
        assert not errors
        noted = await store.get_run(run.run_id)
        assert noted.version == run.version + 20
        # One that was sent again after a lost answer is told where the run stands by then.
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
            replace(
                again,
                callback_error=error,
                version=ended.version,
                updated_at=ended.updated_at,
            )
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
        """Also under a live lease and on an ended run, and once however often it is sent."""
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
        with pytest.raises(StoreRejected):
            await store.update_run(replace(told, base_version=None))
        with pytest.raises(VersionConflict):
            await store.update_run(replace(told, base_version=run.version + 1))
        assert await store.get_run(run.run_id) == run

    async def test_poisoned_annotation_is_rejected(self, store: RunStateStore) -> None:
        run = await create(store)
        with pytest.raises(StoreRejected):
            await store.update_run(annotate(run, poison="\ud800"))
        assert await store.get_run(run.run_id) == run

    async def test_operators_status_change_raises_the_fence(self, store: RunStateStore) -> None:
        """Who held an older fence is refused from here on, whatever it believes."""
        run = await create(store)
        failed = await write(store, operator_status(run, RunStatus.FAILED))
        assert (failed.status, failed.fence) == (RunStatus.FAILED, run.fence + 1)

    @pytest.mark.parametrize("status", [RunStatus.CANCELED, RunStatus.INTERRUPTED])
    async def test_operators_status_change_under_a_live_lease_is_refused(
        self, store: RunStateStore, status: RunStatus
    ) -> None:
        run = await create_embedded(store)
        with pytest.raises(LeaseHeld):
            await store.update_run(operator_status(run, status))
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
        """Only cancel request, approval and annotations commute with what the owner writes."""
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
        """One update, two runs that differ only in their lease: two effects."""
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
        """Steps and hosts are the owner's, also when there is none."""
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
