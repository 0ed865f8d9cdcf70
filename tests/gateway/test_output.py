"""What tasks printed, by offset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.model.update import Fencing, LeaseRequest
from tenure.ports.store import LogKey
from tenure.wire.masking import readable
from tests.gateway.house import Client, House

PRINTED = "grüße\n".encode()


@pytest.fixture
def printed(house: House, queued: str) -> str:
    """A run of which the second attempt on web1 printed something."""
    request = LeaseRequest(owner_id="printer", seconds=60, claim_id=f"claim-{queued}")
    claimed = house.run(house.store.claim_run(queued, request))  # type: ignore[attr-defined]
    fencing = Fencing("printer", claimed.lease.fence)
    for attempt, data in ((1, b"no\n"), (2, PRINTED)):
        key = LogKey(step=0, host="web1", stream="stdout", attempt=attempt)
        house.run(house.store.append(queued, fencing, key, 0, data))  # type: ignore[attr-defined]
    return queued


def test_the_newest_attempt_is_read_unless_another_is_asked_for(
    admin: Client, printed: str
) -> None:
    place = f"/v1/runs/{printed}/logs/0/web1"
    assert admin.get(place).json == {
        "offset": 0,
        "next_offset": len(PRINTED),
        "size": len(PRINTED),
        "attempt": 2,
        "text": "grüße\n",
    }
    assert admin.get(f"{place}?attempt=1").json["text"] == "no\n"
    assert admin.get(f"{place}?stream=stderr").json["text"] == ""


def test_no_character_is_cut_in_two(admin: Client, printed: str) -> None:
    place, offset, parts = f"/v1/runs/{printed}/logs/0/web1", 0, []
    while offset < len(PRINTED):
        part = admin.get(f"{place}?offset={offset}&limit=3").json
        parts.append(part["text"])
        offset = part["next_offset"]
    assert "".join(parts) == "grüße\n"


def test_who_wants_bytes_gets_the_very_bytes(admin: Client, printed: str) -> None:
    place = f"/v1/runs/{printed}/logs/0/web1?offset=2&limit=1"
    answer = admin.get(place, accept="application/octet-stream")
    assert answer.body == PRINTED[2:3]
    assert answer.headers["content-type"] == "application/octet-stream"
    assert (answer.headers["tenure-log-offset"], answer.headers["tenure-log-size"]) == ("2", "8")


def test_streams_are_listed(admin: Client, printed: str) -> None:
    streams = admin.get(f"/v1/runs/{printed}/logs").json["streams"]
    assert [(each["host"], each["attempt"]) for each in streams] == [("web1", 1), ("web1", 2)]


@pytest.mark.parametrize("place", ["7/web1", "x/web1", "-1/web1", "0/web", "²/web1"])
def test_output_of_nothing_is_not_found(admin: Client, printed: str, place: str) -> None:
    from urllib.parse import quote

    answer = admin.get(f"/v1/runs/{printed}/logs/{quote(place)}")
    assert (answer.status, answer.problem) == (404, "output-not-found")


@given(data=st.binary(max_size=40), limit=st.integers(1, 7))
def test_reading_on_always_comes_to_the_end(data: bytes, limit: int) -> None:
    """Whatever was printed, text or not: each step takes something, and all of it is read."""
    offset, shown = 0, ""
    while offset < len(data):
        text, length = readable(data[offset : offset + limit])
        assert 0 < length <= limit
        shown, offset = shown + text, offset + length
    assert offset == len(data)


@given(text=st.text(max_size=30), limit=st.integers(4, 9))
def test_text_read_in_parts_is_the_same_text(text: str, limit: int) -> None:
    data, offset, shown = text.encode(), 0, ""
    while offset < len(data):
        part, length = readable(data[offset : offset + limit])
        shown, offset = shown + part, offset + length
    assert shown == text
