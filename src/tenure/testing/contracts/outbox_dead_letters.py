"""Callbacks given up: kept, shown on the run, and sent again when somebody asks."""

from __future__ import annotations

from contextlib import suppress

from msgspec.structs import replace

from tenure.model.errors import DeliveryLost
from tenure.model.outbox import Delivered, Delivery, GiveUp, RetryLater
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import DeliveryState, RunStatus
from tenure.testing.contracts.acts import create, create_embedded, record_of, write
from tenure.testing.contracts.harness import CallingStore, ContractHarness
from tenure.testing.factories import CHATTY, HOOK, change_run, end_run, unique


class DeadLetters(ContractHarness):
    async def test_dead_letter_shows_on_its_run_and_changes_nothing_else(
        self, store: CallingStore
    ) -> None:
        run = await create_embedded(store, callbacks=(HOOK,), message="as it was")
        ended = await write(store, end_run(run, RunStatus.FAILED))
        await _settle_next(store, Delivered())
        dead = await _settle_next(store, GiveUp("410 Gone"))
        assert (dead.state, dead.last_error) == (DeliveryState.DEAD, "410 Gone")
        shown = await store.get_run(run.run_id)
        assert shown.callback_error is not None
        assert shown.callback_error.at == dead.settled_at
        error = shown.callback_error
        assert (error.target, error.event) == ("hook", "run.failed")
        assert (error.error, error.attempts) == ("410 Gone", 1)
        assert replace(shown, callback_error=None) == ended
        assert (await store.list_runs()).items[0].callback_error == error

    async def test_dead_letter_does_not_disturb_the_owner(self, store: CallingStore) -> None:
        run = await create_embedded(store, callbacks=(HOOK,))
        await _settle_next(store, GiveUp("410"))
        after = await write(store, change_run(run, message="goes on"))
        assert after.version == run.version + 1
        assert after.callback_error is not None

    async def test_dead_letter_does_not_hold_back_the_next(self, store: CallingStore) -> None:
        run = await create_embedded(store, callbacks=(HOOK,))
        await store.update_run(end_run(run))
        await _settle_next(store, GiveUp("410"))
        assert (await _claim_next(store)).event.type == "run.success"

    async def test_attempts_are_counted_over_retries(self, store: CallingStore) -> None:
        await create(store, callbacks=(HOOK,))
        for _ in range(2):
            await _settle_next(store, RetryLater(delay=0, error="503"))
        dead = await _settle_next(store, GiveUp("gave up"))
        assert dead.attempts == 3
        run = await store.get_run(dead.run_id)
        assert run.callback_error is not None
        assert run.callback_error.attempts == 3

    async def test_redelivery_clears_the_error(self, store: CallingStore) -> None:
        run = await create(store, callbacks=(HOOK,))
        dead = await _settle_next(store, GiveUp("410"))
        again = await store.requeue_delivery(dead.id)
        assert (again.id, again.state, again.redelivery) == (dead.id, DeliveryState.WAITING, True)
        assert (again.attempts, again.settled_at) == (0, None)
        assert again.event == dead.event
        held = await _claim_next(store)
        assert (held.id, held.redelivery) == (dead.id, True)
        done = await store.settle_delivery(held.id, held.token or "", Delivered())
        assert (done.attempts, done.redelivery) == (1, True)
        assert record_of(await store.get_run(run.run_id)) == record_of(run)

    async def test_redelivery_that_fails_shows_again(self, store: CallingStore) -> None:
        run = await create(store, callbacks=(HOOK,))
        dead = await _settle_next(store, GiveUp("first"))
        await store.requeue_delivery(dead.id)
        await _settle_next(store, GiveUp("second"))
        now = await store.get_run(run.run_id)
        assert now.callback_error is not None
        assert now.callback_error.error == "second"

    async def test_redelivery_that_must_be_tried_again_still_shows(
        self, store: CallingStore
    ) -> None:
        """Only a delivery clears the error, not the intention to deliver."""
        run = await create(store, callbacks=(HOOK,))
        dead = await _settle_next(store, GiveUp("410"))
        await store.requeue_delivery(dead.id)
        assert _shown(await store.get_run(run.run_id)) == "410"
        await _settle_next(store, RetryLater(delay=0, error="503"))
        assert _shown(await store.get_run(run.run_id)) == "410"

    async def test_newest_dead_letter_shows_and_gives_way_to_the_older(
        self, store: CallingStore
    ) -> None:
        run = await create_embedded(store, callbacks=(HOOK,))
        await store.update_run(end_run(run))
        older = await _settle_next(store, GiveUp("older"))
        await self.pass_time(0.01)
        newer = await _settle_next(store, GiveUp("newer"))
        assert _shown(await store.get_run(run.run_id)) == "newer"
        await store.requeue_delivery(newer.id)
        await _settle_next(store, Delivered())
        assert _shown(await store.get_run(run.run_id)) == "older"
        await store.requeue_delivery(older.id)
        await _settle_next(store, Delivered())
        assert _shown(await store.get_run(run.run_id)) is None

    async def test_delivering_something_else_does_not_clear_the_error(
        self, store: CallingStore
    ) -> None:
        run = await create(store, callbacks=(HOOK, CHATTY))
        for held in await store.claim_deliveries(unique("token")):
            dead = held.target.name == "hook"
            outcome = GiveUp("410") if dead else Delivered()
            await store.settle_delivery(held.id, held.token or "", outcome)
        assert _shown(await store.get_run(run.run_id)) == "410"

    async def test_dead_letter_of_one_run_is_not_shown_on_another(
        self, store: CallingStore
    ) -> None:
        other = await create(store)
        await create(store, callbacks=(HOOK,))
        await _settle_next(store, GiveUp("410"))
        assert await store.get_run(other.run_id) == other

    async def test_requeue_is_idempotent(self, store: CallingStore) -> None:
        await create(store, callbacks=(HOOK,))
        dead = await _settle_next(store, GiveUp("410"))
        again = await store.requeue_delivery(dead.id)
        await self.pass_time(0.01)
        assert await store.requeue_delivery(dead.id) == again

    async def test_requeue_leaves_a_waiting_one_as_it_is(self, store: CallingStore) -> None:
        await create(store, callbacks=(HOOK,))
        held = await _claim_next(store)
        assert await store.requeue_delivery(held.id) == held
        done = await store.settle_delivery(held.id, held.token or "", Delivered())
        assert not done.redelivery

    async def test_delivered_callback_may_be_sent_again(self, store: CallingStore) -> None:
        await create(store, callbacks=(HOOK,))
        done = await _settle_next(store, Delivered())
        await store.requeue_delivery(done.id)
        held = await _claim_next(store)
        assert (held.id, held.redelivery) == (done.id, True)

    async def test_settling_from_before_a_requeue_settles_nothing(
        self, store: CallingStore
    ) -> None:
        """Neither its repetition nor another outcome of that attempt ends the new one."""
        await create(store, callbacks=(HOOK,))
        held = await _claim_next(store)
        await store.settle_delivery(held.id, held.token or "", GiveUp("410"))
        again = await store.requeue_delivery(held.id)
        for outcome in (GiveUp("410"), Delivered()):
            with suppress(DeliveryLost):
                await store.settle_delivery(held.id, held.token or "", outcome)
            assert (await store.list_deliveries()).items == (again,)

    async def test_redelivery_goes_out_before_what_waits_behind_it(
        self, store: CallingStore
    ) -> None:
        """It is the lowest unsettled one of its run and target again."""
        run = await create_embedded(store, callbacks=(HOOK,))
        dead = await _settle_next(store, GiveUp("410"))
        await store.update_run(end_run(run))
        await store.requeue_delivery(dead.id)
        assert (await _claim_next(store)).id == dead.id
        assert await store.claim_deliveries(unique("token")) == []

    async def test_redelivery_waits_for_the_one_in_flight(self, store: CallingStore) -> None:
        run = await create_embedded(store, callbacks=(HOOK,))
        dead = await _settle_next(store, GiveUp("410"))
        await store.update_run(end_run(run))
        in_flight = await _claim_next(store)
        await store.requeue_delivery(dead.id)
        assert await store.claim_deliveries(unique("token")) == []
        await store.settle_delivery(in_flight.id, in_flight.token or "", Delivered())
        assert (await _claim_next(store)).id == dead.id


async def _claim_next(store: CallingStore) -> Delivery:
    (held,) = await store.claim_deliveries(unique("token"), limit=1, seconds=3600)
    return held


async def _settle_next(store: CallingStore, outcome: Delivered | RetryLater | GiveUp) -> Delivery:
    held = await _claim_next(store)
    return await store.settle_delivery(held.id, held.token or "", outcome)


def _shown(run: RunSnapshot) -> str | None:
    return run.callback_error.error if run.callback_error else None
