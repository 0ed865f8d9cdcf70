"""How an attempt ended: delivered, again later, or not under this token."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from tenure.model.errors import DeliveryLost, DeliveryNotFound
from tenure.model.outbox import Delivered, Delivery, GiveUp, Outcome, PutBack, RetryLater
from tenure.model.status import DeliveryState
from tenure.testing.contracts.acts import create
from tenure.testing.contracts.harness import CallingStore, ContractHarness
from tenure.testing.factories import HOOK, unique


class Settling(ContractHarness):
    async def test_delivered_callback_is_done(self, store: CallingStore) -> None:
        held = await _held(store)
        done = await store.settle_delivery(held.id, held.token or "", Delivered())
        assert (done.id, done.state, done.attempts) == (held.id, DeliveryState.DELIVERED, 1)
        assert done.settled_at is not None
        assert await store.claim_deliveries(unique("token")) == []
        assert (await store.list_deliveries()).items == (done,)

    async def test_retry_waits_for_its_delay(self, store: CallingStore) -> None:
        held = await _held(store)
        waiting = await store.settle_delivery(
            held.id, held.token or "", RetryLater(delay=self.lease_seconds, error="503")
        )
        assert (waiting.state, waiting.attempts) == (DeliveryState.WAITING, 1)
        assert (waiting.last_error, waiting.settled_at) == ("503", None)
        assert waiting.due_at - held.due_at >= timedelta(seconds=self.lease_seconds)
        assert await store.claim_deliveries(unique("token")) == []
        await self.expire_leases()
        (again,) = await store.claim_deliveries(unique("token"))
        assert (again.id, again.attempts, again.redelivery) == (held.id, 1, False)
        done = await store.settle_delivery(again.id, again.token or "", Delivered())
        assert (done.attempts, done.last_error) == (2, None)

    async def test_put_back_is_anybodys_at_once_and_cost_no_attempt(
        self, store: CallingStore
    ) -> None:
        held = await _held(store)
        back = await store.settle_delivery(held.id, held.token or "", PutBack())
        assert (back.state, back.attempts, back.due_at) == (DeliveryState.WAITING, 0, held.due_at)
        (again,) = await store.claim_deliveries("next-relay")
        assert (again.id, again.attempts, again.last_error) == (held.id, 0, None)
        with suppress(DeliveryLost):
            await store.settle_delivery(held.id, held.token or "", PutBack())
        assert await store.claim_deliveries(unique("token")) == []

    @pytest.mark.parametrize(
        "outcome",
        [Delivered(), GiveUp("410"), RetryLater(delay=3000, error="503"), PutBack()],
        ids=str,
    )
    async def test_settling_sent_again_gets_the_first_answer(
        self, store: CallingStore, outcome: Outcome
    ) -> None:
        held = await _held(store)
        first = await store.settle_delivery(held.id, held.token or "", outcome)
        run = await store.get_run(held.run_id)
        await self.pass_time(0.01)
        assert await store.settle_delivery(held.id, held.token or "", outcome) == first
        assert (await store.list_deliveries()).items == (first,)
        assert await store.get_run(held.run_id) == run

    async def test_retry_sent_again_while_another_relay_sends_changes_nothing(
        self, store: CallingStore
    ) -> None:
        held = await _held(store)
        outcome = RetryLater(delay=0, error="503")
        await store.settle_delivery(held.id, held.token or "", outcome)
        (next_try,) = await store.claim_deliveries("next-relay", seconds=3600)
        with suppress(DeliveryLost):
            await store.settle_delivery(held.id, held.token or "", outcome)
        assert (await store.list_deliveries()).items == (next_try,)
        assert await store.claim_deliveries(unique("token")) == []
        done = await store.settle_delivery(held.id, "next-relay", Delivered())
        assert (done.state, done.attempts) == (DeliveryState.DELIVERED, 2)

    async def test_stale_token_settles_nothing(self, store: CallingStore) -> None:
        """Its claim expired and another relay is sending: only that one may say how it ended."""
        await create(store, callbacks=(HOOK,))
        (stale,) = await store.claim_deliveries("slow-relay", seconds=self.lease_seconds)
        await self.expire_leases()
        (held,) = await store.claim_deliveries("quick-relay")
        for outcome in (Delivered(), GiveUp("410"), RetryLater(delay=1, error="503"), PutBack()):
            with pytest.raises(DeliveryLost):
                await store.settle_delivery(stale.id, "slow-relay", outcome)
        done = await store.settle_delivery(held.id, "quick-relay", Delivered())
        assert (done.state, done.attempts) == (DeliveryState.DELIVERED, 1)
        with pytest.raises(DeliveryLost):
            await store.settle_delivery(stale.id, "slow-relay", GiveUp("late"))

    async def test_expired_claim_that_nobody_took_still_settles(self, store: CallingStore) -> None:
        """The target did get it; sending it once more would help nobody."""
        await create(store, callbacks=(HOOK,))
        (held,) = await store.claim_deliveries("slow-relay", seconds=self.lease_seconds)
        await self.expire_leases()
        done = await store.settle_delivery(held.id, "slow-relay", Delivered())
        assert done.state == DeliveryState.DELIVERED

    async def test_callback_nobody_claimed_cannot_be_settled(self, store: CallingStore) -> None:
        await create(store, callbacks=(HOOK,))
        (waiting,) = (await store.list_deliveries()).items
        with pytest.raises(DeliveryLost):
            await store.settle_delivery(waiting.id, "any-token", Delivered())
        assert (await store.list_deliveries()).items == (waiting,)

    async def test_unknown_delivery_is_refused(self, store: CallingStore) -> None:
        with pytest.raises(DeliveryNotFound):
            await store.settle_delivery("never-created", "token", Delivered())
        with pytest.raises(DeliveryNotFound):
            await store.requeue_delivery("never-created")


async def _held(store: CallingStore) -> Delivery:
    """The one callback of a new run, in the hands of a relay."""
    await create(store, callbacks=(HOOK,))
    (held,) = await store.claim_deliveries(unique("token"), seconds=3600)
    return held
