"""Which callbacks go out next: one at a time per run and target, in order, nobody else waits."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tenure.model.errors import StoreRejected, VersionConflict
from tenure.model.outbox import Delivered, Delivery, RetryLater
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import DeliveryState, RunStatus
from tenure.model.update import NewDelivery
from tenure.testing.contracts.acts import create, create_embedded, record_of, write
from tenure.testing.contracts.harness import CallingStore, ContractHarness
from tenure.testing.factories import (
    CHATTY,
    HOOK,
    end_run,
    finish_step,
    start_step,
    unique,
)


class DeliveryClaims(ContractHarness):
    async def test_callbacks_come_into_being_with_their_update(self, store: CallingStore) -> None:
        run = await create_embedded(store, callbacks=(HOOK,), workflow_name="deploy")
        (first,) = await _claim(store)
        assert (first.run_id, first.workflow_name) == (run.run_id, "deploy")
        assert first.target == HOOK
        assert (first.event.type, first.event.version, first.event.seq) == ("run.running", 1, 0)
        assert (first.run_status, first.state) == (RunStatus.RUNNING, DeliveryState.WAITING)
        assert (first.attempts, first.redelivery, first.settled_at) == (0, False, None)
        assert first.event.at == run.updated_at
        await store.settle_delivery(first.id, first.token or "", Delivered())
        ended = await write(store, end_run(run, RunStatus.FAILED))
        (second,) = await _claim(store)
        assert (second.event.type, second.event.version) == ("run.failed", ended.version)
        assert second.event.error == ended.error
        assert second.run_status == RunStatus.FAILED

    async def test_refused_update_owes_nothing(self, store: CallingStore) -> None:
        run = await create_embedded(store, callbacks=(HOOK,))
        await _send_all(store)
        with pytest.raises(VersionConflict):
            await store.update_run(replace(end_run(run), base_version=run.version + 1))
        assert await _claim(store) == []

    async def test_update_sent_again_owes_nothing_more(self, store: CallingStore) -> None:
        run = await create_embedded(store, callbacks=(HOOK,))
        final = end_run(run)
        await store.update_run(final)
        await store.update_run(final)
        await store.update_run(end_run(run))
        page = await store.list_deliveries(run_id=run.run_id)
        assert [delivery.event.type for delivery in page.items] == ["run.success", "run.running"]

    async def test_delivery_id_that_is_taken_is_rejected(self, store: CallingStore) -> None:
        run = await create_embedded(store, callbacks=(HOOK,))
        (taken,) = (await store.list_deliveries()).items
        final = end_run(run)
        repeated = replace(
            final,
            effect=replace(
                final.effect, deliveries=(NewDelivery(id=taken.id, target="hook", seq=0),)
            ),
        )
        with pytest.raises(StoreRejected):
            await store.update_run(repeated)
        assert record_of(await store.get_run(run.run_id)) == record_of(run)
        assert (await store.list_deliveries()).items == (taken,)

    async def test_order_per_run_and_target(self, store: CallingStore) -> None:
        """By version, then by place in the update; one in flight."""
        run = await create_embedded(store, callbacks=(CHATTY,))
        run = await write(store, start_step(run, 0))
        run = await write(store, finish_step(run, 0))
        await store.update_run(end_run(run))
        sent: list[tuple[int, int]] = []
        while claimed := await _claim(store):
            (one,) = claimed
            assert await _claim(store) == []
            sent.append((one.event.version, one.event.seq))
            await store.settle_delivery(one.id, one.token or "", Delivered())
        assert sent == [
            (1, 0),
            *[(2, seq) for seq in range(3)],
            *[(3, seq) for seq in range(3)],
            (4, 0),
        ]

    async def test_waiting_callback_holds_back_only_its_own_run_and_target(
        self, store: CallingStore
    ) -> None:
        other_target = CallbackTarget(name="other", url="https://other.example")
        run = await create_embedded(store, callbacks=(HOOK, other_target))
        await store.update_run(end_run(run))
        for head in await _claim(store):
            failed = head.target.name == "hook"
            outcome = RetryLater(delay=3000, error="503") if failed else Delivered()
            await store.settle_delivery(head.id, head.token or "", outcome)
        another = await create_embedded(store, "owner-b", callbacks=(HOOK,))
        claimed = await _claim(store)
        assert {(one.run_id, one.target.name, one.event.type) for one in claimed} == {
            (run.run_id, "other", "run.success"),
            (another.run_id, "hook", "run.running"),
        }

    async def test_many_relays_never_hold_the_same_callback(self, store: CallingStore) -> None:
        for _ in range(30):
            await create(store, callbacks=(HOOK,))
        answers = await asyncio.gather(
            *(store.claim_deliveries(unique("token"), limit=4) for _ in range(10))
        )
        claimed = [one.id for answer in answers for one in answer]
        claimed += [one.id for one in await _claim(store)]
        assert len(claimed) == len(set(claimed)) == 30

    async def test_limit_and_soonest_due_first(self, store: CallingStore) -> None:
        runs = []
        for _ in range(3):
            runs.append(await create(store, callbacks=(HOOK,)))
            await self.pass_time(0.01)
        claimed = await store.claim_deliveries(unique("token"), limit=2)
        assert [one.run_id for one in claimed] == [run.run_id for run in runs[:2]]

    async def test_claim_sent_again_returns_what_is_held_and_no_more(
        self, store: CallingStore
    ) -> None:
        for _ in range(3):
            await create(store, callbacks=(HOOK,))
        token = unique("token")
        first = await store.claim_deliveries(token, limit=2)
        again = await store.claim_deliveries(token, limit=2)
        assert sorted(one.id for one in again) == sorted(one.id for one in first)
        await store.settle_delivery(first[0].id, token, Delivered())
        assert [one.id for one in await store.claim_deliveries(token, limit=2)] == [first[1].id]
        assert len(await _claim(store)) == 1

    async def test_claim_of_a_relay_that_died_expires(self, store: CallingStore) -> None:
        await create(store, callbacks=(HOOK,))
        (first,) = await store.claim_deliveries("dead-relay", seconds=self.lease_seconds)
        assert await _claim(store) == []
        await self.expire_leases()
        (again,) = await _claim(store)
        assert (again.id, again.attempts) == (first.id, 0)
        assert again.token != first.token

    async def test_returned_deliveries_share_nothing_with_the_store(
        self, store: CallingStore
    ) -> None:
        target = replace(HOOK, headers={"X-Team": "web"})
        await create(store, callbacks=(target,))
        (claimed,) = await _claim(store)
        claimed.target.headers.clear()
        (listed,) = (await store.list_deliveries()).items
        listed.target.headers.clear()
        (again,) = (await store.list_deliveries()).items
        assert again.target == target


async def _claim(store: CallingStore) -> list[Delivery]:
    return await store.claim_deliveries(unique("token"), limit=100, seconds=3600)


async def _send_all(store: CallingStore) -> None:
    while claimed := await _claim(store):
        for one in claimed:
            await store.settle_delivery(one.id, one.token or "", Delivered())
