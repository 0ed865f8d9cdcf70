"""``Outbox`` and ``OutboxBatches``: callbacks, sent in order and never lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest
from msgspec.structs import replace

from tenure.model.errors import (
    DeliveryLost,
    DeliveryNotFound,
    InvalidCursor,
    StoreRejected,
    TenureError,
    VersionConflict,
)
from tenure.model.outbox import (
    Delivered,
    Delivery,
    GiveUp,
    Outcome,
    PutBack,
    RetryLater,
    Settlement,
    origin_of,
)
from tenure.model.snapshot import CallbackTarget, RunSnapshot
from tenure.model.status import DeliveryState, RunStatus
from tenure.model.update import NewDelivery
from tenure.ports.callbacks import Outbox, OutboxBatches
from tenure.testing.contracts.acts import (
    UNKNOWN_RUN_IDS,
    create,
    create_embedded,
    pages,
    record_of,
    refused,
    write,
)
from tenure.testing.contracts.harness import BatchSettlingStore, CallingStore, ContractHarness
from tenure.testing.factories import (
    CHATTY,
    HOOK,
    change_run,
    end_run,
    finish_step,
    start_step,
    unique,
)


class DeliveryClaims(ContractHarness):
    """Claims of callbacks: one at a time per run and target, in order."""

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
        await refused(StoreRejected, store.update_run(repeated))
        assert record_of(await store.get_run(run.run_id)) == record_of(run)
        assert (await store.list_deliveries()).items == (taken,)

    async def test_order_per_run_and_target(self, store: CallingStore) -> None:
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


BUSY = CallbackTarget(name="busy", url="https://busy.example/hook")
BUSY_TOO = CallbackTarget(name="busy-too", url="https://BUSY.example:443/other?path#here")
IDLE = CallbackTarget(name="idle", url="http://idle.example")
NAMELESS = CallbackTarget(name="no-url")


class OriginClaims(ContractHarness):
    """Claims limited by origin or to some callbacks."""

    async def test_origins_left_out_are_not_claimed(self, store: CallingStore) -> None:
        for target in (BUSY, BUSY_TOO, IDLE, NAMELESS):
            await create(store, callbacks=(target,))
        claimed = await _claim_of(
            store, except_origins=[origin_of(BUSY), "https://unknown.example"]
        )
        assert sorted(one.target.name for one in claimed) == ["idle", "no-url"]
        claimed = await _claim_of(store)
        assert sorted(one.target.name for one in claimed) == ["busy", "busy-too"]

    async def test_so_many_of_each_origin_soonest_due_first(self, store: CallingStore) -> None:
        runs = []
        for target in (BUSY, BUSY_TOO, BUSY, IDLE, BUSY, IDLE):
            runs.append(await create(store, callbacks=(target,)))
            await self.pass_time(0.01)
        claimed = await _claim_of(store, per_origin=2)
        expected = [runs[number].run_id for number in (0, 1, 3, 5)]
        assert [one.run_id for one in claimed] == expected
        claimed = await _claim_of(store, per_origin=2)
        assert [one.run_id for one in claimed] == [runs[2].run_id, runs[4].run_id]

    async def test_limit_is_over_all_origins(self, store: CallingStore) -> None:
        runs = []
        for target in (IDLE, BUSY, IDLE, BUSY, BUSY):
            runs.append(await create(store, callbacks=(target,)))
            await self.pass_time(0.01)
        claimed = await _claim_of(store, limit=3, per_origin=2)
        assert [one.run_id for one in claimed] == [run.run_id for run in runs[:3]]

    async def test_only_what_is_named_is_claimed(self, store: CallingStore) -> None:
        for target in (IDLE, BUSY, BUSY, BUSY):
            await create(store, callbacks=(target,))
            await self.pass_time(0.01)
        *busy, idle = (each.id for each in (await store.list_deliveries()).items)
        assert await _claim_of(store, only=[]) == []
        assert await _claim_of(store, only=["nobody-knows-it"]) == []
        assert await _claim_of(store, only=[idle], except_origins=[origin_of(IDLE)]) == []
        few = await _claim_of(store, only=[*busy, idle], per_origin=1, limit=2)
        assert [one.id for one in few] == [idle, busy[-1]]
        assert [one.id for one in await _claim_of(store, only=[idle, busy[0]])] == [busy[0]]
        assert [one.id for one in await _claim_of(store)] == [busy[1]]

    async def test_what_is_named_keeps_its_turn(self, store: CallingStore) -> None:
        run = await create_embedded(store, callbacks=(BUSY,))
        await store.update_run(end_run(run))
        later, head = (await store.list_deliveries()).items
        assert await _claim_of(store, only=[later.id]) == []
        (held,) = await _claim_of(store, only=[head.id, later.id])
        assert held.id == head.id
        await store.settle_delivery(head.id, held.token or "", RetryLater(3000, "503"))
        assert await _claim_of(store, only=[head.id, later.id]) == []

    async def test_what_cannot_be_claimed_takes_no_place(self, store: CallingStore) -> None:
        resting = await create_embedded(store, callbacks=(BUSY,))
        await store.update_run(end_run(resting))
        (held,) = await _claim_of(store)
        await store.settle_delivery(held.id, held.token or "", RetryLater(3000, "503"))
        await self.pass_time(0.01)
        sent = await create_embedded(store, "owner-b", callbacks=(BUSY,))
        (head,) = await _claim_of(store)
        await store.settle_delivery(head.id, head.token or "", Delivered())
        await store.update_run(end_run(sent))
        await self.pass_time(0.01)
        (in_flight,) = await _claim_of(store)
        await store.requeue_delivery(head.id)
        await self.pass_time(0.01)
        free = await create(store, callbacks=(BUSY,))
        assert [one.run_id for one in await _claim_of(store, per_origin=1)] == [free.run_id]
        await store.settle_delivery(in_flight.id, in_flight.token or "", Delivered())
        assert [one.id for one in await _claim_of(store, per_origin=1)] == [head.id]

    async def test_claim_sent_again_returns_what_is_held_wherever_it_goes(
        self, store: CallingStore
    ) -> None:
        for target in (BUSY, BUSY, IDLE):
            await create(store, callbacks=(target,))
        token = unique("token")
        first = await store.claim_deliveries(token, per_origin=2)
        again = await store.claim_deliveries(
            token, per_origin=1, except_origins=[origin_of(BUSY), origin_of(IDLE)]
        )
        assert sorted(one.id for one in again) == sorted(one.id for one in first)
        assert len(first) == 3

    async def test_redelivery_keeps_its_origin(self, store: CallingStore) -> None:
        await create(store, callbacks=(BUSY,))
        (held,) = await _claim_of(store)
        await store.settle_delivery(held.id, held.token or "", Delivered())
        await store.requeue_delivery(held.id)
        assert await _claim_of(store, except_origins=[origin_of(BUSY)]) == []
        assert [one.id for one in await _claim_of(store)] == [held.id]


async def _claim_of(
    store: CallingStore,
    *,
    limit: int = 100,
    per_origin: int | None = None,
    except_origins: list[str] | None = None,
    only: list[str] | None = None,
) -> list[Delivery]:
    return await store.claim_deliveries(
        unique("token"),
        limit=limit,
        seconds=3600,
        per_origin=per_origin,
        except_origins=except_origins or (),
        only=only,
    )


class Settling(ContractHarness):
    """Outcomes of an attempt: delivered, retry, or refused for a stale token."""

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
        """The claim expired and another relay is sending it."""
        await create(store, callbacks=(HOOK,))
        (stale,) = await store.claim_deliveries("slow-relay", seconds=self.lease_seconds)
        await self.expire_leases()
        (held,) = await store.claim_deliveries("quick-relay")
        for outcome in (Delivered(), GiveUp("410"), RetryLater(delay=1, error="503"), PutBack()):
            await refused(DeliveryLost, store.settle_delivery(stale.id, "slow-relay", outcome))
        done = await store.settle_delivery(held.id, "quick-relay", Delivered())
        assert (done.state, done.attempts) == (DeliveryState.DELIVERED, 1)
        await refused(DeliveryLost, store.settle_delivery(stale.id, "slow-relay", GiveUp("late")))

    async def test_expired_claim_that_nobody_took_still_settles(self, store: CallingStore) -> None:
        """The target has received it; sending it again would not help."""
        await create(store, callbacks=(HOOK,))
        (held,) = await store.claim_deliveries("slow-relay", seconds=self.lease_seconds)
        await self.expire_leases()
        done = await store.settle_delivery(held.id, "slow-relay", Delivered())
        assert done.state == DeliveryState.DELIVERED

    async def test_callback_nobody_claimed_cannot_be_settled(self, store: CallingStore) -> None:
        await create(store, callbacks=(HOOK,))
        (waiting,) = (await store.list_deliveries()).items
        await refused(DeliveryLost, store.settle_delivery(waiting.id, "any-token", Delivered()))
        assert (await store.list_deliveries()).items == (waiting,)

    async def test_unknown_delivery_is_refused(self, store: CallingStore) -> None:
        with pytest.raises(DeliveryNotFound):
            await store.settle_delivery("never-created", "token", Delivered())
        await refused(DeliveryNotFound, store.requeue_delivery("never-created"))


async def _held(store: CallingStore) -> Delivery:
    """The claimed callback of a new run."""
    await create(store, callbacks=(HOOK,))
    (held,) = await store.claim_deliveries(unique("token"), seconds=3600)
    return held


class DeadLetters(ContractHarness):
    """Callbacks given up: kept, shown on the run, and requeued by operators."""

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
        """Only a delivery clears the error."""
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


class DeliveryListing(ContractHarness):
    """Lists of callbacks."""

    async def test_newest_is_listed_first(self, store: CallingStore) -> None:
        run = await create_embedded(store, callbacks=(CHATTY,))
        await store.update_run(start_step(run, 0, ("web1",)))
        page = await store.list_deliveries()
        assert [item.event.type for item in page.items] == [
            "host.running",
            "step.running",
            "run.running",
        ]
        assert page.cursor is None

    async def test_one_is_found_by_its_id(self, store: CallingStore) -> None:
        run = await create_embedded(store, callbacks=(CHATTY,))
        await store.update_run(start_step(run, 0, ("web1",)))
        listed = (await store.list_deliveries()).items
        assert [await store.get_delivery(each.id) for each in listed] == list(listed)
        for unknown in ("no-such-delivery", "\ud800"):
            await refused(DeliveryNotFound, store.get_delivery(unknown))

    async def test_filters_by_state_and_run(self, store: CallingStore) -> None:
        runs = [await create(store, callbacks=(HOOK,)) for _ in range(3)]
        token = unique("token")
        held = {one.run_id: one for one in await store.claim_deliveries(token)}
        await store.settle_delivery(held[runs[0].run_id].id, token, Delivered())
        await store.settle_delivery(held[runs[1].run_id].id, token, GiveUp("410"))
        for state, run in zip(
            (DeliveryState.DELIVERED, DeliveryState.DEAD, DeliveryState.WAITING), runs, strict=True
        ):
            (only,) = (await store.list_deliveries(state=state)).items
            assert (only.run_id, only.state) == (run.run_id, state)
            (same,) = (await store.list_deliveries(state=state, run_id=run.run_id)).items
            assert same == only
            others = await store.list_deliveries(state=state, run_id=runs[0].run_id)
            assert len(others.items) == (run is runs[0])
        assert len((await store.list_deliveries()).items) == 3
        for unknown in UNKNOWN_RUN_IDS:
            assert (await store.list_deliveries(run_id=unknown)).items == ()

    async def test_pages_hold_every_delivery_once_whatever_is_inserted(
        self, store: CallingStore
    ) -> None:
        for _ in range(7):
            await create(store, callbacks=(HOOK,))
        there = [item.id for item in (await store.list_deliveries()).items]
        seen: list[str] = []
        async for page in pages(store.list_deliveries, limit=2):
            seen += [item.id for item in page]
            await create(store, callbacks=(HOOK,))
        assert seen == there

    async def test_foreign_cursor_is_refused(self, store: CallingStore) -> None:
        for _ in range(2):
            await create(store, callbacks=(HOOK,))
        other = (await store.list_runs(limit=1)).cursor
        assert other is not None
        for cursor in ("nonsense", other):
            await refused(InvalidCursor, store.list_deliveries(cursor=cursor))

    async def test_ended_runs_deliveries_stay_listed(self, store: CallingStore) -> None:
        run = await create_embedded(store, callbacks=(HOOK,))
        await store.update_run(end_run(run))
        listed = await store.list_deliveries(run_id=run.run_id)
        assert [item.run_status for item in listed.items] == ["success", "running"]


class OutboxBatchesContract(ContractHarness):
    """``OutboxBatches``: settle many and claim, in one commit."""

    async def test_store_settles_in_batches(self, store: BatchSettlingStore) -> None:
        assert isinstance(store, OutboxBatches)

    async def test_each_settlement_has_its_answer_in_order(self, store: BatchSettlingStore) -> None:
        first, second, third = await _held_batch(store, 3)
        answers = await store.settle_deliveries(
            [
                _settlement(second, RetryLater(self.lease_seconds, "503")),
                _settlement(third, GiveUp("410")),
                _settlement(first, Delivered()),
            ]
        )
        settled = [_accepted(answer) for answer in answers]
        assert [(one.id, one.state, one.attempts) for one in settled] == [
            (second.id, DeliveryState.WAITING, 1),
            (third.id, DeliveryState.DEAD, 1),
            (first.id, DeliveryState.DELIVERED, 1),
        ]
        listed = (await store.list_deliveries()).items
        assert sorted(listed, key=_by_id) == sorted(settled, key=_by_id)
        run = await store.get_run(third.run_id)
        assert run.callback_error is not None
        assert run.callback_error.error == "410"
        await self.expire_leases()
        assert [one.id for one in await store.claim_deliveries(unique("token"))] == [second.id]

    async def test_empty_batch_has_no_answers(self, store: BatchSettlingStore) -> None:
        assert await store.settle_deliveries([]) == []

    async def test_next_one_of_each_run_is_due_at_once(self, store: BatchSettlingStore) -> None:
        for number in range(3):
            run = await create_embedded(store, f"owner-{number}", callbacks=(HOOK,))
            await store.update_run(end_run(run))
        heads = await store.claim_deliveries(unique("token"), seconds=3600)
        assert {one.event.type for one in heads} == {"run.running"}
        await store.settle_deliveries([_settlement(head, Delivered()) for head in heads])
        following = await store.claim_deliveries(unique("token"), seconds=3600)
        assert [one.event.type for one in following] == ["run.success"] * 3

    async def test_refused_settlement_never_harms_another(self, store: BatchSettlingStore) -> None:
        held = await _held_batch(store, 6)
        faults: list[tuple[Settlement, type[TenureError]]] = [
            (Settlement(held[0].id, "another-relay", Delivered()), DeliveryLost),
            *((Settlement(name, "token", Delivered()), DeliveryNotFound) for name in UNKNOWN),
            (_settlement(held[1], GiveUp("half a pair: \ud800")), StoreRejected),
            (_settlement(held[2], RetryLater(float("nan"), "503")), StoreRejected),
        ]
        settlements = [fault for fault, _ in faults]
        for place, one in enumerate(held[3:]):
            settlements.insert(place * 2, _settlement(one, Delivered()))
        answers = await store.settle_deliveries(settlements)
        wrong = [answer for answer in answers if isinstance(answer, TenureError)]
        assert [type(error) for error in wrong] == [error for _, error in faults]
        for fault, error in faults:
            with pytest.raises(error):
                await store.settle_delivery(fault.delivery_id, fault.token, fault.outcome)
        states = {one.id: one.state for one in (await store.list_deliveries()).items}
        assert [states[one.id] for one in held[:3]] == [DeliveryState.WAITING] * 3
        assert [states[one.id] for one in held[3:]] == [DeliveryState.DELIVERED] * 3

    async def test_batch_sent_again_changes_nothing(self, store: BatchSettlingStore) -> None:
        held = await _held_batch(store, 3)
        outcomes: list[Outcome] = [Delivered(), GiveUp("410"), RetryLater(3000, "503")]
        batch = [_settlement(*each) for each in zip(held, outcomes, strict=True)]
        first = await store.settle_deliveries(batch)
        await self.pass_time(0.01)
        assert await store.settle_deliveries(batch) == first
        assert sorted((await store.list_deliveries()).items, key=_by_id) == sorted(
            map(_accepted, first), key=_by_id
        )

    async def test_one_delivery_twice_in_a_batch_is_settled_once(
        self, store: BatchSettlingStore
    ) -> None:
        (held,) = await _held_batch(store, 1)
        first, second = await store.settle_deliveries(
            [_settlement(held, GiveUp("first")), _settlement(held, Delivered())]
        )
        assert _accepted(first) == _accepted(second)
        assert _accepted(first).last_error == "first"

    async def test_next_one_is_claimed_in_the_commit_that_settles(
        self, store: BatchSettlingStore
    ) -> None:
        for number in range(3):
            run = await create_embedded(store, f"owner-{number}", callbacks=(HOOK,))
            await store.update_run(end_run(run))
        heads = await store.claim_deliveries(unique("token"), seconds=3600)
        settlements = [
            _settlement(heads[0], Delivered()),
            _settlement(heads[1], RetryLater(3000, "503")),
            Settlement("never-created", "token", Delivered()),
            _settlement(heads[2], GiveUp("410")),
        ]
        token = unique("token")
        answers, claimed = await store.settle_and_claim(settlements, token, seconds=3600)
        assert [getattr(answer, "state", None) for answer in answers] == [
            DeliveryState.DELIVERED,
            DeliveryState.WAITING,
            None,
            DeliveryState.DEAD,
        ]
        assert [one.run_id for one in claimed] == [heads[0].run_id, heads[2].run_id]
        assert {(one.event.type, one.token) for one in claimed} == {("run.success", token)}
        assert (await store.settle_and_claim(settlements, token, seconds=3600))[1] == claimed, (
            "sent again, it must return what it held"
        )

    async def test_claim_behind_a_batch_keeps_its_bounds(self, store: BatchSettlingStore) -> None:
        held = await _held_batch(store, 1)
        for _ in range(4):
            await create(store, callbacks=(HOOK,))
        done = [_settlement(one, Delivered()) for one in held]
        assert (await store.settle_and_claim(done, unique("token"), limit=0))[1] == []
        origin = origin_of(HOOK)
        left_out = await store.settle_and_claim([], unique("token"), except_origins=[origin])
        assert left_out == ([], [])
        _, few = await store.settle_and_claim([], unique("token"), per_origin=1)
        _, two = await store.settle_and_claim([], unique("token"), limit=2)
        assert (len(few), len(two)) == (1, 2)


UNKNOWN = ("never-created", *UNKNOWN_RUN_IDS)


async def _held_batch(store: BatchSettlingStore, number: int) -> list[Delivery]:
    for _ in range(number):
        await create(store, callbacks=(HOOK,))
    return await store.claim_deliveries(unique("token"), seconds=3600)


def _settlement(held: Delivery, outcome: Outcome) -> Settlement:
    return Settlement(held.id, held.token or "", outcome)


def _accepted(answer: Delivery | TenureError) -> Delivery:
    assert isinstance(answer, Delivery), answer
    return answer


def _by_id(delivery: Delivery) -> str:
    return delivery.id


class OutboxContract(DeliveryClaims, OriginClaims, Settling, DeadLetters, DeliveryListing):
    """``Outbox``: claim, settle, requeue, list."""

    async def test_store_is_an_outbox(self, store: CallingStore) -> None:
        assert isinstance(store, Outbox)
