"""``OutboxBatches``: how many attempts ended, and what goes out next, in one commit."""

from __future__ import annotations

import pytest

from tenure.model.errors import DeliveryLost, DeliveryNotFound, StoreRejected, TenureError
from tenure.model.outbox import (
    Delivered,
    Delivery,
    GiveUp,
    Outcome,
    RetryLater,
    Settlement,
    origin_of,
)
from tenure.model.status import DeliveryState
from tenure.ports.callbacks import OutboxBatches
from tenure.testing.contracts.acts import UNKNOWN_RUN_IDS, create, create_embedded
from tenure.testing.contracts.harness import BatchSettlingStore, ContractHarness
from tenure.testing.factories import HOOK, end_run, unique


class OutboxBatchesContract(ContractHarness):
    async def test_store_settles_in_batches(self, store: BatchSettlingStore) -> None:
        assert isinstance(store, OutboxBatches)

    async def test_each_settlement_has_its_answer_in_order(self, store: BatchSettlingStore) -> None:
        first, second, third = await _held(store, 3)
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
        """Each answer is the very error that the single call would raise."""
        held = await _held(store, 6)
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
        held = await _held(store, 3)
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
        (held,) = await _held(store, 1)
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
        held = await _held(store, 1)
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


async def _held(store: BatchSettlingStore, number: int) -> list[Delivery]:
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
