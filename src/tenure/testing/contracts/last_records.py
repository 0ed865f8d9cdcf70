"""``LastRecords``: what a process is told of a run that it has just ended is what it would read."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenure.model.outbox import GiveUp
from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import HostStatus, RunStatus, StepKind, StepStatus
from tenure.model.update import Changes, HostChange, ItemChange, StepChange
from tenure.ports.last_records import LastRecords
from tenure.testing.contracts.acts import UNKNOWN_RUN_IDS, create_embedded, record_of, write
from tenure.testing.contracts.followed import FollowedRun
from tenure.testing.contracts.harness import ContractHarness, RememberingStore
from tenure.testing.contracts.run_lives import LIVES, Life
from tenure.testing.factories import (
    HOOK,
    annotate,
    end_run,
    finish_host,
    finish_step,
    operator_status,
    owner_update,
    planned_steps,
    start_step,
)


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
