"""Runs that somebody must approve: one yes is enough, in time, and nobody has them before."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.model.errors import InvalidTransition, StoreRejected
from tenure.model.snapshot import Approval, RunSnapshot
from tenure.model.status import RunStatus
from tenure.ports.store import RunStateStore
from tenure.testing.contracts.acts import at_once, create, create_embedded, write
from tenure.testing.contracts.harness import ContractHarness
from tenure.testing.factories import (
    HOOK,
    LONG,
    approve,
    cancel,
    embedded_run,
    expire,
    lease_request,
    new_run,
    operator_status,
)

ASKS = Approval(required=True)


async def waiting(store: RunStateStore, seconds: float | None, **fields: Any) -> RunSnapshot:
    """A run that may be approved for so long."""
    new = replace(new_run(approval=ASKS, **fields), approval_seconds=seconds)
    await store.create_run(new)
    return await store.get_run(new.snapshot.run_id)


class RunApproval(ContractHarness):
    async def test_approval_is_recorded_once(self, store: RunStateStore) -> None:
        run = await create(store, approval=ASKS)
        approved = await write(store, approve(run, by="alice", note="as agreed"))
        assert approved.approval == Approval(
            required=True, by="alice", at=approved.updated_at, note="as agreed"
        )
        assert (approved.status, approved.fence) == (RunStatus.QUEUED, run.fence)
        receipt = await store.update_run(approve(run, by="bob", note="me too"))
        assert receipt.version == approved.version
        assert await store.get_run(run.run_id) == approved

    async def test_approval_sent_again_after_a_lost_answer_is_no_second_one(
        self, store: RunStateStore
    ) -> None:
        run = await create(store, approval=ASKS)
        yes = approve(run, by="alice")
        first = await store.update_run(yes)
        assert (await store.update_run(yes)).version == first.version

    async def test_of_many_approvers_at_once_one_is_written(self, store: RunStateStore) -> None:
        run = await create(store, approval=ASKS)
        names = [f"approver-{number}" for number in range(10)]
        receipts, errors = await at_once(store.update_run(approve(run, by=name)) for name in names)
        assert not errors
        assert {receipt.version for receipt in receipts} == {run.version + 1}
        assert (await store.get_run(run.run_id)).approval.by in names

    async def test_approval_of_an_ended_run_is_refused(self, store: RunStateStore) -> None:
        run = await create(store, approval=ASKS)
        ended = await write(store, cancel(run))
        with pytest.raises(InvalidTransition):
            await store.update_run(approve(run))
        assert await store.get_run(run.run_id) == ended

    async def test_run_that_does_not_ask_cannot_be_approved(self, store: RunStateStore) -> None:
        run = await create(store)
        with pytest.raises(InvalidTransition):
            await store.update_run(approve(run))
        assert await store.get_run(run.run_id) == run

    async def test_nobody_begins_a_run_that_waits(self, store: RunStateStore) -> None:
        run = await create(store, approval=ASKS)
        with pytest.raises(InvalidTransition):
            await store.update_run(operator_status(run, RunStatus.RUNNING))
        assert await store.get_run(run.run_id) == run

    async def test_run_that_waits_is_born_queued_and_unowned(self, store: RunStateStore) -> None:
        begun = embedded_run("owner-a", approval=ASKS)
        owned = replace(new_run(approval=ASKS), lease=lease_request("owner-a", seconds=LONG))
        for new in (begun, owned):
            with pytest.raises(StoreRejected):
                await store.create_run(new)

    async def test_run_approved_at_birth_begins_at_once(self, store: RunStateStore) -> None:
        run = await create_embedded(store, approval=Approval(required=True, by="alice"))
        assert run.approval == Approval(required=True, by="alice", at=run.created_at)

    async def test_time_to_approve_counts_from_birth_by_the_stores_clock(
        self, store: RunStateStore
    ) -> None:
        run = await waiting(store, 3600.0)
        assert run.created_at is not None
        assert run.approval.expires_at is not None
        assert (run.approval.expires_at - run.created_at).total_seconds() == 3600.0

    async def test_run_expires_once_its_time_is_over(self, store: RunStateStore) -> None:
        run = await waiting(store, self.lease_seconds, callbacks=(HOOK,))
        await self.expire_leases()
        ended = await write(store, expire(run))
        assert (ended.status, ended.fence) == (RunStatus.CANCELED, run.fence + 1)
        assert ended.message == "canceled: not approved in time"
        assert ended.approval == run.approval
        assert (await store.update_run(expire(run))).version == ended.version

    async def test_run_does_not_expire_before(self, store: RunStateStore) -> None:
        for run in (await waiting(store, LONG), await waiting(store, None), await create(store)):
            with pytest.raises(InvalidTransition):
                await store.update_run(expire(run))
            assert await store.get_run(run.run_id) == run

    async def test_approval_comes_too_late(self, store: RunStateStore) -> None:
        """Also while nobody has written down that it expired."""
        run = await waiting(store, self.lease_seconds)
        await self.expire_leases()
        with pytest.raises(InvalidTransition):
            await store.update_run(approve(run))
        assert await store.get_run(run.run_id) == run

    async def test_approved_run_never_expires(self, store: RunStateStore) -> None:
        run = await waiting(store, self.lease_seconds)
        approved = await write(store, approve(run, by="alice"))
        await self.expire_leases()
        with pytest.raises(InvalidTransition):
            await store.update_run(expire(approved))
        assert (await store.update_run(approve(run, by="bob"))).version == approved.version
        assert await store.get_run(run.run_id) == approved
