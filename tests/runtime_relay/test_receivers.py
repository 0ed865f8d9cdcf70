"""Over real HTTP: bad receivers delay no good one."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tenure.model.outbox import Delivery
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import DeliveryState
from tenure.notifiers.http import HttpSender, HttpSettings
from tenure.ports.callbacks import CallbackSender
from tenure.runtime.options import RelayTiming
from tenure.testing.contracts.acts import create
from tests.notifiers.receiver import Receiver
from tests.runtime_relay.conftest import NewRelay
from tests.runtime_relay.senders import PATIENCE

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
