"""``Retention`` beside an ``Outbox``: a callback that waits keeps its run."""

from __future__ import annotations

import pytest

from tenure.model.errors import DeliveryNotFound, RunNotFound
from tenure.model.outbox import Delivered, Delivery, GiveUp, Outcome, RetryLater
from tenure.testing.contracts.acts import create
from tenure.testing.contracts.harness import ForgettingCallingStore
from tenure.testing.contracts.retention import ForgettingHarness, ended
from tenure.testing.factories import HOOK, unique


class OutboxRetentionContract(ForgettingHarness):
    async def test_run_with_a_callback_to_be_sent_stays(
        self, store: ForgettingCallingStore
    ) -> None:
        """And does not use up the limit: what ended later is forgotten in its place."""
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
        with pytest.raises(RunNotFound):
            await store.get_run(run.run_id)
        assert (await store.list_deliveries()).items == ()
        assert (await store.list_deliveries(run_id=run.run_id)).items == ()
        for delivery in settled:
            with pytest.raises(DeliveryNotFound):
                await store.requeue_delivery(delivery.id)
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
