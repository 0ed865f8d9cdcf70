"""How long a claim holds, for whom, and how much is claimed at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.model.outbox import Delivery, PutBack
from tenure.model.status import DeliveryState
from tenure.ports.callbacks import NotTaken
from tenure.runtime.options import RelayTiming
from tenure.stores.memory import InMemoryStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts.acts import create
from tests.runtime.puppets import Between
from tests.runtime_relay.conftest import NEVER_POLLS, NewRelay
from tests.runtime_relay.senders import (
    BUSY,
    EVERYTHING,
    PATIENCE,
    Postman,
    busy_run,
    hanging,
    once_set,
    one_after_another,
    skipping,
    states,
    target,
)

pytestmark = pytest.mark.slow


class TestTime:
    SHORT = RelayTiming(send=0.02, begin=0.02, margin=0.02, poll=3600)

    async def test_hanging_sender_is_cut_off_before_its_claim_ends(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        await create(memory, callbacks=(target(),))
        assert await new_relay(memory, Postman(hook=hanging), timing=self.SHORT).flush(PATIENCE)
        (delivery,) = (await memory.list_deliveries()).items
        assert (delivery.attempts, delivery.last_error) == (1, "no answer in time")

    async def test_frozen_relay_is_refused_and_harms_nothing(
        self, memory: InMemoryStore, clock: ManualClock, new_relay: NewRelay
    ) -> None:
        """Its claim ran out while it was sending; another relay sent the same id and failed."""
        await create(memory, callbacks=(target(),))
        thaws = asyncio.Event()

        cold = Postman(hook=once_set(thaws))
        relay = new_relay(memory, cold)
        await cold.carries(1)
        clock.advance(NEVER_POLLS.claim)
        warm = Postman(hook=one_after_another(BUSY))
        assert await new_relay(memory, warm).flush(PATIENCE)
        thaws.set()
        assert await relay.flush(PATIENCE)
        assert cold.ids == warm.ids
        assert await states(memory) == [(DeliveryState.WAITING, 1)]

    async def test_nobody_else_sends_while_the_claim_lasts(
        self, memory: InMemoryStore, clock: ManualClock, new_relay: NewRelay
    ) -> None:
        await busy_run(memory, target())
        first = Postman(hook=hanging)
        new_relay(memory, first)
        await first.carries(1)
        clock.advance(NEVER_POLLS.claim - 0.001)
        second = Postman()
        assert await new_relay(memory, second).flush(PATIENCE)
        assert second.sent == []

    async def test_attempt_of_a_machine_that_slept_goes_on_under_the_new_claim(
        self, memory: InMemoryStore, clock: ManualClock, new_relay: NewRelay
    ) -> None:
        """The store's clock went on while ours stood still: the claim ran out, and this very relay
        claims again what it is sending. It is sent once, and settled."""
        await create(memory, callbacks=(target(),))
        go_on = asyncio.Event()

        postman = Postman(hook=once_set(go_on))
        relay = new_relay(memory, postman)
        await postman.carries(1)
        clock.advance(NEVER_POLLS.claim)
        assert not await relay.flush(0.3)
        (delivery,) = (await memory.list_deliveries()).items
        assert delivery.token != postman.sent[0].token, "it was not claimed again"
        go_on.set()
        assert await relay.flush(PATIENCE)
        assert len(postman.sent) == 1
        assert await states(memory) == [(DeliveryState.DELIVERED, 1)]

    async def test_what_a_machine_that_slept_had_queued_is_sent_once_under_the_new_claim(
        self, memory: InMemoryStore, clock: ManualClock, new_relay: NewRelay
    ) -> None:
        for _ in range(4):
            await create(memory, callbacks=(target(),))
        go_on = asyncio.Event()

        postman = Postman(hook=once_set(go_on))
        relay = new_relay(memory, postman)
        await postman.carries(2)
        clock.advance(NEVER_POLLS.claim)
        await relay.flush(0.3)
        go_on.set()
        assert await relay.flush(PATIENCE)
        assert len(postman.ids) == len(set(postman.ids)) == 4
        assert await states(memory) == [(DeliveryState.DELIVERED, 1)] * 4

    async def test_what_cannot_begin_in_time_is_left_to_others(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        """Queued behind two that hang: no attempt is counted, and it is free at once."""
        for _ in range(4):
            await create(memory, callbacks=(target(),))
        stuck, skip = Postman(hook=hanging), skipping()
        relay = new_relay(memory, stuck)
        await stuck.carries(2)
        skip(NEVER_POLLS.begin + 1)
        assert not await relay.flush(0.3)
        assert not list(relay._lanes.queued()), "still held"
        free = Postman()
        assert await new_relay(memory, free).flush(PATIENCE)
        assert len(free.sent) == 2
        assert not {*free.ids} & {*stuck.ids}

    async def test_time_counts_from_when_the_claim_was_sent(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        """The store took long to answer: how much of the claim is left nobody knows, so nothing of
        it is sent."""
        await create(memory, callbacks=(target(),))
        store, postman, skip = Between(memory), Postman(), skipping()
        put_back = asyncio.Event()

        async def slowly(real: Any, *args: Any, **kwargs: Any) -> Any:
            claimed = await real(*args, **kwargs)
            if store.count("claim_deliveries") == 1:
                skip(NEVER_POLLS.begin + 1)
            return claimed

        async def settle(real: Any, settlements: Any, *args: Any, **kwargs: Any) -> Any:
            assert [each.outcome for each in settlements] == [PutBack()]
            put_back.set()
            return await real(settlements, *args, **kwargs)

        store.rules["claim_deliveries"] = slowly
        store.rules["settle_and_claim"] = settle
        relay = new_relay(store, postman)
        await asyncio.wait_for(put_back.wait(), PATIENCE)
        assert postman.sent == []
        del store.rules["settle_and_claim"]
        skip(3600)
        assert await relay.flush(PATIENCE)
        assert await states(memory) == [(DeliveryState.DELIVERED, 1)]


class TestCompany:
    async def test_many_relays_send_each_callback_once_and_in_order(
        self, store: Any, new_relay: NewRelay
    ) -> None:
        runs = [await busy_run(store, EVERYTHING, steps=1) for _ in range(10)]
        postman = Postman()
        relays = [new_relay(store, postman, timing=RelayTiming(poll=0.01)) for _ in range(5)]
        ids = [run.run_id for run in runs]
        assert all(await asyncio.gather(*(relay.flush(PATIENCE, ids) for relay in relays)))
        assert len(postman.ids) == len(set(postman.ids)) == 80
        for run in runs:
            places = postman.places(run.run_id)
            assert places == sorted(places)
        assert postman.most_per_run_and_target == 1


class TestIsolation:
    async def test_ten_that_hang_delay_no_other(self, store: Any, new_relay: NewRelay) -> None:
        """They came first and have plenty waiting; nobody ever answers."""
        for _ in range(10):
            for number in range(10):
                await create(store, callbacks=(target(number, "hung"),))
        healthy = [await create(store, callbacks=(target(10),)) for _ in range(40)]
        postman = Postman(hung=hanging)
        relay = new_relay(store, postman)
        assert await relay.flush(PATIENCE, [run.run_id for run in healthy])
        assert sum(one.target.name == "hook" for one in postman.sent) == 40
        assert postman.most[None] <= 100

    async def test_350_silent_ones_that_one_run_names_delay_no_other(
        self, store: Any, new_relay: NewRelay
    ) -> None:
        """None of them ever ends; the healthy one is as new as they are."""
        silent = [target(number, f"hung-{number}") for number in range(350)]
        await create(store, callbacks=silent)
        healthy = await create(store, callbacks=(target(350),))
        postman = Postman(**{each.name: hanging for each in silent})
        assert await new_relay(store, postman).flush(PATIENCE, [healthy.run_id])
        assert postman.places(healthy.run_id)
        assert len(postman.sent) <= 21

    async def test_350_silent_ones_of_as_many_runs_delay_none_that_answers(
        self, store: Any, new_relay: NewRelay
    ) -> None:
        postman = Postman(hung=hanging)
        relay = new_relay(store, postman)
        first = await create(store, callbacks=(target(350),))
        assert await relay.flush(PATIENCE, [first.run_id])
        for number in range(350):
            await create(store, callbacks=(target(number, "hung"),))
        healthy = await create(store, callbacks=(target(350),))
        assert await relay.flush(PATIENCE, [healthy.run_id])
        assert len(postman.sent) <= 82

    async def test_silent_ones_that_had_no_place_are_free_for_other_relays(
        self, store: Any, new_relay: NewRelay
    ) -> None:
        silent = [target(number, f"hung-{number}") for number in range(50)]
        await create(store, callbacks=silent)
        rules = {each.name: hanging for each in silent}
        first, second = Postman(**rules), Postman()
        healthy = await create(store, callbacks=(target(50),))
        assert await new_relay(store, first).flush(PATIENCE, [healthy.run_id])
        new_relay(store, second, timing=RelayTiming(poll=0.01))
        await second.carries(51 - len(first.ids))
        assert not {*first.ids} & {*second.ids}

    async def test_no_more_is_claimed_for_one_than_it_can_use(
        self, store: Any, new_relay: NewRelay
    ) -> None:
        """What this relay does not send soon is left to others."""
        for _ in range(200):
            await create(store, callbacks=(target(0, "hung"),))
        healthy = await create(store, callbacks=(target(1),))
        relay = new_relay(store, Postman(hung=hanging), per_target=5)
        assert await relay.flush(PATIENCE, [healthy.run_id])
        relay.wake()
        await relay.flush(0.3)
        page = await store.list_deliveries(limit=500)
        assert sum(one.token is not None for one in page.items) <= 20

    async def test_ten_that_were_good_and_hang_now_delay_no_other(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        hang = asyncio.Event()

        async def until_now(_: Delivery) -> NotTaken | None:
            if hang.is_set():
                await asyncio.Event().wait()
            return None

        async def many(each: int) -> list[str]:
            return [
                (await create(memory, callbacks=(target(number, "hung"),))).run_id
                for _ in range(each)
                for number in range(10)
            ]

        postman = Postman(hung=until_now)
        relay = new_relay(memory, postman)
        assert await relay.flush(PATIENCE, await many(20))
        hang.set()
        await many(20)
        healthy = [await create(memory, callbacks=(target(10),)) for _ in range(40)]
        assert await relay.flush(PATIENCE, [run.run_id for run in healthy])
        assert 50 < postman.most[None] <= 100
