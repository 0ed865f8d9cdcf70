"""Callbacks as values. How their states may change: ``test_transitions``."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.model.errors import DeliveryLost
from tenure.model.outbox import (
    Delivered,
    Delivery,
    GiveUp,
    Outcome,
    PutBack,
    RetryLater,
    as_callback_error,
    origin_of,
    requeue,
    settle,
)
from tenure.model.snapshot import CallbackError, CallbackTarget
from tenure.model.status import DeliveryState, RunStatus
from tenure.model.update import Position, RecordedEvent
from tests.model.samples import AT, after


def waiting(**fields: Any) -> Delivery:
    event = RecordedEvent(type="run.failed", run_id="run-00001", version=4, seq=0, at=AT, fence=1)
    given: dict[str, Any] = {
        "id": "d1",
        "run_id": "run-00001",
        "workflow_name": "deploy",
        "target": CallbackTarget(name="hook"),
        "event": event,
        "run_status": RunStatus.FAILED,
        "due_at": AT,
        "token": "mine",
    }
    return Delivery(**given | fields)


def settled(delivery: Delivery, outcome: Outcome, token: str = "mine") -> Delivery:
    return settle(delivery, token, outcome, at=after(1), due_at=after(9))


def test_delivered() -> None:
    end = settled(waiting(attempts=2, last_error="503"), Delivered())
    assert (end.state, end.attempts, end.settled_at, end.last_error) == (
        DeliveryState.DELIVERED,
        3,
        after(1),
        None,
    )


def test_retry_waits_until_due_and_is_nobodys() -> None:
    end = settled(waiting(), RetryLater(8, "503"))
    assert (end.state, end.attempts, end.due_at, end.last_error, end.token) == (
        DeliveryState.WAITING,
        1,
        after(9),
        "503",
        None,
    )
    assert end.settled_at is None


def test_put_back_is_as_if_it_had_not_been_claimed() -> None:
    before = waiting(attempts=2)
    end = settled(before, PutBack())
    assert end == replace(before, token=None, settled_token=before.token)


def test_given_up_is_a_dead_letter_that_shows_on_its_run() -> None:
    dead = settled(waiting(attempts=7), GiveUp("410 gone"))
    assert (dead.state, dead.attempts, dead.due_at) == (DeliveryState.DEAD, 8, AT)
    assert as_callback_error(dead) == CallbackError(
        target="hook", event="run.failed", error="410 gone", attempts=8, at=after(1)
    )


@pytest.mark.parametrize("outcome", [Delivered(), RetryLater(8, "x"), GiveUp("x"), PutBack()])
@pytest.mark.parametrize("holder", ["other", None])
def test_only_the_token_that_holds_it_settles(outcome: Outcome, holder: str | None) -> None:
    with pytest.raises(DeliveryLost, match="d1"):
        settled(waiting(token=holder), outcome)


@pytest.mark.parametrize("first", [Delivered(), GiveUp("x")])
def test_settling_again_changes_nothing(first: Outcome) -> None:
    end = settled(waiting(), first)
    for again in (Delivered(), GiveUp("y"), RetryLater(1, "y"), PutBack()):
        assert settled(end, again) == end


def test_sent_again_under_the_same_id_from_the_start() -> None:
    dead = settled(waiting(attempts=7), GiveUp("410"))
    again = requeue(dead, after(50))
    assert (again.id, again.state, again.attempts, again.due_at) == (
        "d1",
        DeliveryState.WAITING,
        0,
        after(50),
    )
    assert (again.redelivery, again.settled_at, again.token) == (True, None, None)
    with pytest.raises(DeliveryLost):
        settled(again, Delivered())


def test_one_that_waits_stays_as_it_is() -> None:
    assert requeue(waiting(), after(50)) == waiting()
    claimed = replace(waiting(), token="relay")
    assert requeue(claimed, after(50)) == claimed


def test_positions_order_the_journal() -> None:
    assert Position() < Position(1, 0) < Position(1, 1) < Position(2, 0) < Position(10, 0)
    assert str(Position(12, 3)) == "12.3"
    assert waiting().event.position == Position(4, 0)
    assert waiting().event.kind == "run"


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://hooks.example/run", "https://hooks.example:443"),
        ("http://hooks.example/run", "http://hooks.example:80"),
        ("HTTPS://Hooks.Example:443/other?token=x#y", "https://hooks.example:443"),
        ("https://user:secret@hooks.example", "https://hooks.example:443"),
        ("https://hooks.example:8443", "https://hooks.example:8443"),
        ("http://[::1]:8080/run", "http://::1:8080"),
        ("http://[::1", "http://[::1"),
        ("https://hooks.example:99999/", "https://hooks.example:99999/"),
        ("mailto:ops@example", "mailto:ops@example"),
        ("", ""),
        (None, "hook"),
    ],
)
def test_origin_is_the_receiver_behind_a_url(url: str | None, origin: str) -> None:
    assert origin_of(CallbackTarget(name="hook", url=url)) == origin
