"""How long a claim holds, for whom, how much is claimed at once, and that bad receivers delay no
good one."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tenure.model.outbox import Delivery, PutBack
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import DeliveryState
from tenure.notifiers.http import HttpSender, HttpSettings
from tenure.ports.callbacks import CallbackSender
from tenure.runtime.options import RelayTiming
from tenure.stores.memory import InMemoryStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts.acts import create
from tests.notifiers.receiver import Receiver
from tests.runtime.puppets import Between
from tests.runtime_relay.conftest import NEVER_POLLS, NewRelay
from tests.runtime_relay.senders import (
    BUSY,
    PATIENCE,
    Postman,
    hanging,
    once_set,
    one_after_another,
    skipping,
    states,
    target,
)


@pytest.mark.slow
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


@pytest.mark.slow
class TestIsolation:
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


SILENT = ("hang", "trickle-headers")
VICES = (
    *SILENT,
    "trickle-body",
    "500",
    "503?after=3600",
    "301",
    "400",
    "410",
    "429",
    "reset",
    "bad-tls",
    "endless",
    "interim",
    "chatter",
    "crumbs",
    "gzip-bomb",
)
MOST = 12
"""Callbacks that wait for each of them: more than it gets places."""


@pytest.fixture
async def sender() -> AsyncIterator[CallbackSender]:
    """So patient that nothing that hangs is over before this test."""
    sender = HttpSender(HttpSettings(allow_private=True, total_timeout=3600))
    yield sender
    await sender.close()


@pytest.mark.slow
async def test_with_every_vice_in_play_all_healthy_deliveries_are_done_before_any_that_hangs(
    store: Any, new_relay: NewRelay, sender: CallbackSender, server_tls: ssl.SSLContext
) -> None:
    """Each vice is a receiver of its own, came first, and has more waiting than it gets places. If
    a healthy delivery waited for one of them, it would wait an hour."""
    async with AsyncExitStack() as receivers:
        good = await receivers.enter_async_context(Receiver())
        bad: dict[str, Receiver] = {}
        for vice in VICES:
            tls = server_tls if vice == "bad-tls" else None
            bad[vice] = await receivers.enter_async_context(Receiver(tls=tls))
            target = CallbackTarget(name=vice, url=bad[vice].url(vice))
            for _ in range(MOST):
                await create(store, callbacks=(target,))
        healthy = [
            await create(store, callbacks=(CallbackTarget(name="ok", url=good.url("ok")),))
            for _ in range(50)
        ]
        relay = new_relay(store, sender, timing=RelayTiming(send=3600, poll=3600))
        assert await relay.flush(PATIENCE, [run.run_id for run in healthy])
        assert len({one.headers["webhook-id"] for one in good.received}) == 50
        for vice in SILENT:
            assert bad[vice].received, "it was not in play"
            assert await attempts(store, vice) == [0] * MOST, "somebody gave up on it"
        assert not [vice for vice in VICES if not bad[vice].connections and vice != "bad-tls"]
        await relay.close(0)


async def attempts(store: Any, target: str) -> list[int]:
    page = await store.list_deliveries(limit=500)
    found: list[Delivery] = [each for each in page.items if each.target.name == target]
    assert {each.state for each in found} == {DeliveryState.WAITING}
    return [each.attempts for each in found]
