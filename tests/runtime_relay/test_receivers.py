"""Over real HTTP: bad receivers delay no good one, and no receiver changes a run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

import tenure
from tenure.model.codec import full_record
from tenure.model.retry import RetryPolicy
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import DeliveryState
from tenure.notifiers.http import HttpSender, HttpSettings
from tenure.ports.sender import CallbackSender
from tenure.stores.memory import InMemoryStore
from tenure.testing.contracts.acts import create
from tests.notifiers.receiver import Receiver
from tests.runtime.puppets import BROKEN, Puppet, step, workflow
from tests.runtime_relay.conftest import NewRelay
from tests.runtime_relay.senders import PATIENCE

VICES = (
    "hang",
    "trickle-headers",
    "trickle-body",
    "endless",
    "reset",
    "drop",
    "garbage",
    "500",
    "503?after=3600",
    "301",
)


@pytest.fixture
async def sender() -> AsyncIterator[CallbackSender]:
    sender = HttpSender(HttpSettings(allow_private=True))
    yield sender
    await sender.close()


@pytest.mark.slow
async def test_with_ten_vices_in_play_every_healthy_delivery_is_done_in_two_seconds(
    store: Any, new_relay: NewRelay, sender: CallbackSender
) -> None:
    """Each vice is a receiver of its own, came first, and has more waiting than it gets places."""
    async with AsyncExitStack() as receivers:
        good = await receivers.enter_async_context(Receiver())
        for vice in VICES:
            bad = await receivers.enter_async_context(Receiver())
            target = CallbackTarget(name=vice, url=bad.url(vice))
            for _ in range(12):
                await create(store, callbacks=(target,))
        healthy = [
            await create(store, callbacks=(CallbackTarget(name="ok", url=good.url("ok")),))
            for _ in range(50)
        ]
        relay = new_relay(store, sender)
        assert await relay.flush(2.0, [run.run_id for run in healthy])
        assert len({one.headers["webhook-id"] for one in good.received}) == 50
        await relay.close(0)


def bare(record: Any) -> Any:
    """Without what must differ: ids, times, and what says that there were callbacks."""
    if isinstance(record, list):
        return [bare(each) for each in record]
    if not isinstance(record, dict):
        return record
    return {
        name: bare(value)
        for name, value in record.items()
        if name not in ("run_id", "owner_id", "callbacks", "callback_error")
        and not name.endswith("_at")
    }


@pytest.mark.parametrize("answer", ["ok", "500", "410", "drop"])
@pytest.mark.parametrize("ends", ["success", "failed"])
async def test_run_with_callbacks_ends_as_the_one_without(
    new_relay: NewRelay, sender: CallbackSender, answer: str, ends: str
) -> None:
    store = InMemoryStore()
    act = Puppet()
    act.results["one/b"] = BROKEN
    steps = (step("one", continue_on_error=ends == "success"), step("two"))
    flow = workflow(*steps, hosts=("a", "b"))
    relay = new_relay(store, sender, policy=RetryPolicy(attempts=2))
    async with (
        Receiver() as receiver,
        tenure.Runner(store, actions={act.spec.name: act}) as runner,
    ):
        target = CallbackTarget(
            name="hook", url=receiver.url(answer), events=("run", "step", "host")
        )
        without = await runner.run(flow)
        run = await runner.run(flow, tenure.RunOptions(callbacks=[target]))
        assert await relay.flush(PATIENCE)
        told = await runner.get_run(run.run_id)
        sent = {one.headers["webhook-id"] for one in receiver.received}
    assert without.status == ends
    assert bare(full_record(told)) == bare(full_record(without))
    assert (told.version, told.updated_at) == (run.version, run.updated_at)
    owed = (await store.list_deliveries()).items
    assert sent == {delivery.id for delivery in owed}
    expected = DeliveryState.DELIVERED if answer == "ok" else DeliveryState.DEAD
    assert {delivery.state for delivery in owed} == {expected}
    assert (told.callback_error is None) == (answer == "ok")
