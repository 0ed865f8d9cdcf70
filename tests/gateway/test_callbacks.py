"""Callbacks over HTTP: what became of them, and once more. The gateway sends them itself."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.gateway.conftest import flow
from tests.gateway.house import Client, House

INSIDE = {"url": "http://127.0.0.1:9/hook"}
"""An address that a submitter may not reach: its callback is given up at the first attempt."""


def dead_letters(client: Client, run_id: str) -> Any:
    """Of a run that owes one."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        found = client.get(f"/v1/callbacks?state=dead&run_id={run_id}").json["callbacks"]
        if found:
            return found
    raise AssertionError("it was not given up")


@pytest.fixture
def owing(operator: Client, run_id: str) -> str:
    options = {"run_id": run_id, "callbacks": [INSIDE]}
    assert operator.post("/v1/runs", {"workflow": flow(), "options": options}).status == 201
    return run_id


def test_a_dead_letter_is_listed_shown_and_sent_again(operator: Client, owing: str) -> None:
    (letter,) = dead_letters(operator, owing)
    assert letter["attempts"] == 1
    run = operator.get(f"/v1/runs/{owing}")
    assert run.json["callback_error"]["error"] == letter["last_error"]
    shown = operator.get(f"/v1/callbacks/{letter['id']}").json
    assert shown["payload"]["type"] == "run.queued"
    again = operator.post(f"/v1/callbacks/{letter['id']}/redeliver")
    assert (again.status, again.json["id"]) == (200, letter["id"])
    assert again.json["redelivery"]
    (letter,) = dead_letters(operator, owing)
    assert letter["redelivery"]
    after = operator.get(f"/v1/runs/{owing}", if_none_match=run.headers["etag"])
    assert after.status == 200
    same = {**after.json, "callback_error": None, "version": 1, "updated_at": None}
    assert same == {**run.json, "callback_error": None, "version": 1, "updated_at": None}


def test_the_journal_says_who_wanted_a_callback_again(operator: Client, owing: str) -> None:
    (letter,) = dead_letters(operator, owing)
    operator.post(f"/v1/callbacks/{letter['id']}/redeliver")
    *_, event = operator.get(f"/v1/runs/{owing}/events").json["events"]
    assert event["type"] == "callback.redelivered"
    assert event["data"] == {
        "by": "operator",
        "id": letter["id"],
        "target": "callback-1",
        "event": "run.queued",
    }


def test_a_limited_token_finds_callbacks_of_its_own_queues_only(
    house: House, operator: Client, owing: str
) -> None:
    (letter,) = dead_letters(operator, owing)
    for queue, status in (("elsewhere", 404), ("default", 200)):
        limited = house.client(house.token("operator", f"of {queue}", queues=(queue,)))
        answers = (
            limited.get(f"/v1/callbacks/{letter['id']}"),
            limited.get(f"/v1/callbacks?run_id={owing}"),
            limited.post(f"/v1/callbacks/{letter['id']}/redeliver"),
        )
        limited.close()
        assert [answer.status for answer in answers] == [status] * 3
    assert len(operator.get(f"/v1/runs/{owing}/events").json["events"]) == 2


def test_an_unknown_callback_is_not_found(operator: Client) -> None:
    for answer in (
        operator.get("/v1/callbacks/nowhere"),
        operator.post("/v1/callbacks/nowhere/redeliver"),
    ):
        assert (answer.status, answer.problem) == (404, "delivery-not-found")
    assert operator.get("/v1/callbacks?run_id=no-such-run").problem == "run-not-found"
    assert operator.get("/v1/callbacks?run_id=bad").problem == "malformed"
