"""Callbacks without an outbox: in order, by the policy, and never in anybody's way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.model.outbox import Delivery
from tenure.model.retry import RetryPolicy
from tenure.runtime.callbacks import BestEffort, NotifierSender
from tenure.wire.callbacks import CallbackPayload
from tests.runtime.puppets import Inbox
from tests.runtime_relay.senders import (
    BUSY,
    GONE,
    PATIENCE,
    Postman,
    hanging,
    one_after_another,
    target,
)
from tests.runtime_relay.test_lanes import held

AT_ONCE = RetryPolicy(attempts=3)
LATER = RetryPolicy(attempts=3, delay=3600)

NewBestEffort = Callable[..., BestEffort]


def owed(version: int, run_id: str = "run-00001", name: str = "hook") -> Delivery:
    delivery = held("anywhere").delivery
    event = replace(delivery.event, run_id=run_id, version=version, status="success")
    return replace(delivery, run_id=run_id, event=event, target=target(0, name))


class GivenUp:
    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []

    async def __call__(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)


@pytest.fixture
def given_up() -> GivenUp:
    return GivenUp()


@pytest.fixture
async def new_best_effort(given_up: GivenUp) -> AsyncIterator[NewBestEffort]:
    async with AsyncExitStack() as closing:

        def make(policy: RetryPolicy = AT_ONCE, **rest: Any) -> BestEffort:
            effort = BestEffort(policy, rest.pop("gave_up", given_up), **rest)
            closing.push_async_callback(effort.close, 0)
            return effort

        yield make


async def test_order_is_kept_through_failures(new_best_effort: NewBestEffort) -> None:
    attempts = iter(range(1000))
    postman = Postman(hook=lambda _: BUSY if next(attempts) % 3 == 0 else None)
    effort = new_best_effort(RetryPolicy(attempts=100))
    for version in range(1, 51):
        effort.owe(owed(version), postman)
    await postman.carries(75)
    assert await effort.flush(PATIENCE)
    places = postman.places("run-00001")
    assert places == sorted(places)
    assert len(set(places)) == 50 < len(places)
    assert postman.most_per_run_and_target == 1


async def test_waiting_one_holds_back_only_its_own_run_and_target(
    new_best_effort: NewBestEffort,
) -> None:
    postman = Postman(hook=lambda one: BUSY if one.run_id == "run-00001" else None)
    effort = new_best_effort(LATER)
    for delivery in (owed(1), owed(2), owed(1, "run-00002"), owed(1, name="other")):
        effort.owe(delivery, postman)
    assert await effort.flush(PATIENCE)
    assert len(postman.places("run-00001")) == 1
    assert len(postman.places("run-00002")) == len(postman.places("run-00001", "other")) == 1


async def test_given_up_one_is_told_and_the_next_goes_out(
    new_best_effort: NewBestEffort, given_up: GivenUp
) -> None:
    postman = Postman(hook=one_after_another(BUSY, BUSY, BUSY, GONE))
    effort = new_best_effort()
    for version in (1, 2, 3):
        effort.owe(owed(version), postman)
    await postman.carries(5)
    assert await effort.flush(PATIENCE)
    assert [(one.attempts, one.last_error) for one in given_up.deliveries] == [
        (3, BUSY.error),
        (1, GONE.error),
    ]
    assert len(postman.sent) == 5


async def test_failure_to_record_holds_up_nothing(
    new_best_effort: NewBestEffort, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_: Delivery) -> None:
        raise OSError("disk full")

    postman = Postman(hook=one_after_another(GONE))
    effort = new_best_effort(gave_up=broken)
    effort.owe(owed(1), postman)
    effort.owe(owed(2), postman)
    assert await effort.flush(PATIENCE)
    assert len(postman.sent) == 2
    assert "cannot record" in caplog.text


async def test_attempt_is_bounded_in_time(new_best_effort: NewBestEffort) -> None:
    postman = Postman(hook=hanging)
    effort = new_best_effort(LATER, seconds=0.01)
    effort.owe(owed(1), postman)
    assert await effort.flush(PATIENCE)


async def test_one_receiver_gets_so_many_at_once(new_best_effort: NewBestEffort) -> None:
    postman = Postman()
    effort = new_best_effort(per_origin=3)
    for number in range(20):
        effort.owe(owed(1, f"run-{number:05}"), postman)
    assert await effort.flush(PATIENCE)
    assert postman.most[None] == 3


async def test_memory_is_bounded(new_best_effort: NewBestEffort, given_up: GivenUp) -> None:
    postman = Postman(hook=lambda _: BUSY)
    effort = new_best_effort(LATER, most_waiting=2)
    for version in (1, 2, 3):
        effort.owe(owed(version), postman)
    assert await effort.flush(PATIENCE)
    (refused,) = given_up.deliveries
    assert refused.event.version == 3
    assert refused.last_error == "2 callbacks of this run wait for their target already"


async def test_memory_is_bounded_over_all_runs(
    new_best_effort: NewBestEffort, given_up: GivenUp
) -> None:
    postman = Postman(hook=lambda _: BUSY)
    effort = new_best_effort(LATER, most_in_all=2)
    for number in range(3):
        effort.owe(owed(1, f"run-{number:05}"), postman)
    assert await effort.flush(PATIENCE)
    (refused,) = given_up.deliveries
    assert refused.run_id == "run-00002"
    assert refused.last_error == "2 callbacks wait in memory already"


async def test_what_went_out_leaves_nothing_behind(new_best_effort: NewBestEffort) -> None:
    effort = new_best_effort(most_in_all=2)
    for number in range(10):
        effort.owe(owed(1, f"run-{number:05}"), Postman())
        assert await effort.flush(PATIENCE)
        await asyncio.gather(*effort._tasks)
    assert (effort._kept, effort._lines, dict(effort._places)) == (0, {}, {})


async def test_flush_waits_until_what_was_given_up_is_recorded(
    new_best_effort: NewBestEffort,
) -> None:
    """Also after the last of many attempts."""
    recorded = asyncio.Event()
    go_on = asyncio.Event()

    async def slowly(_: Delivery) -> None:
        recorded.set()
        await go_on.wait()

    postman = Postman(hook=one_after_another(BUSY, BUSY, BUSY))
    effort = new_best_effort(gave_up=slowly)
    effort.owe(owed(1), postman)
    await asyncio.wait_for(recorded.wait(), PATIENCE)
    assert not await effort.flush(0.01)
    go_on.set()
    assert await effort.flush(PATIENCE)


async def test_flush_of_one_run_does_not_wait_for_another(new_best_effort: NewBestEffort) -> None:
    postman = Postman(hook=lambda one: hanging(one) if one.run_id == "run-00001" else None)
    effort = new_best_effort()
    effort.owe(owed(1), postman)
    effort.owe(owed(1, "run-00002"), postman)
    assert await effort.flush(PATIENCE, ("run-00002", "hook"))
    assert not await effort.flush(0.01, ("run-00001", "hook"))
    assert await effort.flush(PATIENCE, ("run-00003", "hook")), "it owes nothing"


async def test_closing_says_what_is_lost(
    new_best_effort: NewBestEffort, given_up: GivenUp, caplog: pytest.LogCaptureFixture
) -> None:
    """Once for each run and target."""
    postman = Postman(hook=hanging, other=lambda _: BUSY)
    effort = new_best_effort(LATER)
    for delivery in (owed(1), owed(2), owed(3, name="other")):
        effort.owe(delivery, postman)
    await postman.carries(2)
    await effort.close(0.01)
    assert "3 callbacks are lost" in caplog.text
    ended = "the process ended before it was delivered"
    assert [(one.event.version, one.attempts, one.last_error) for one in given_up.deliveries] == [
        (1, 0, f"{ended}, with 1 more behind it"),
        (3, 1, f"{BUSY.error}; {ended}"),
    ]


async def test_recording_what_is_lost_does_not_hold_up_closing(
    new_best_effort: NewBestEffort, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_: Delivery) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("tenure.runtime.callbacks._A_MOMENT", 0.01)
    effort = new_best_effort(gave_up=never)
    effort.owe(owed(1), Postman(hook=hanging))
    await asyncio.wait_for(effort.close(0), PATIENCE)


class TestNotifier:
    async def test_it_gets_the_payload(self, new_best_effort: NewBestEffort) -> None:
        inbox = Inbox()
        effort = new_best_effort()
        effort.owe(owed(4), NotifierSender(inbox))
        assert await effort.flush(PATIENCE)
        (said,) = inbox.payloads
        assert (said.run_id, said.version, said.workflow_name) == ("run-00001", 4, "deploy")

    async def test_it_is_called_again_when_it_raises(
        self, new_best_effort: NewBestEffort, given_up: GivenUp
    ) -> None:
        class Moody:
            def __init__(self) -> None:
                self.versions: list[int] = []
                self.heard_all = asyncio.Event()

            async def notify(self, payload: CallbackPayload) -> None:
                self.versions.append(payload.version)
                if len(self.versions) % 2:
                    raise ConnectionError("not now")
                if len(self.versions) == 4:
                    self.heard_all.set()

        moody = Moody()
        effort = new_best_effort()
        for version in (1, 2):
            effort.owe(owed(version), NotifierSender(moody))
        await asyncio.wait_for(moody.heard_all.wait(), PATIENCE)
        assert await effort.flush(PATIENCE)
        assert moody.versions == [1, 1, 2, 2]
        assert not given_up.deliveries
