"""What an answer means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.notifiers.http.answer import LONGEST_WAIT, Answer, verdict, wait_asked_for
from tenure.ports.callbacks import NotTaken
from tests.model.samples import AT


def test_every_status_has_its_meaning() -> None:
    meanings: dict[str, list[int]] = {"taken": [], "again": [], "never": []}
    for status in range(100, 1000):
        refused = verdict(Answer(status=status), AT)
        key = "taken" if refused is None else "again" if refused.again else "never"
        meanings[key].append(status)
    assert meanings["taken"] == list(range(200, 300))
    assert meanings["again"] == [408, 425, 429, *range(500, 600)]
    assert len(meanings["never"]) == 900 - 100 - 103


def test_the_status_and_what_was_said_are_in_the_error() -> None:
    said = verdict(Answer(status=503, excerpt="back soon"), AT)
    assert said == NotTaken(error="answered 503: back soon", again=True)
    assert verdict(Answer(status=410), AT) == NotTaken(error="answered 410", again=False)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
def test_who_asks_for_time_gets_it(status: int) -> None:
    refused = verdict(Answer(status=status, retry_after="7"), AT)
    assert refused is not None
    assert (refused.again, refused.not_before) == (True, 7.0)


@pytest.mark.parametrize("status", [301, 400, 410])
def test_who_is_not_asked_again_need_not_be_waited_for(status: int) -> None:
    refused = verdict(Answer(status=status, retry_after="7"), AT)
    assert refused is not None
    assert (refused.again, refused.not_before) == (False, 0.0)


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("http://10.0.0.1/inside", "http://10.0.0.1/inside"),
        ("https://a:hunter22@b.example/x?token=hunter22#hunter22", "https://b.example/x"),
        ("/login?next=hunter22", "/login"),
        ("//a:hunter22@b.example/x", "//b.example/x"),
        ("http://a:hunter22@[::1/x?hunter22", "[::1/x"),
        ("\x1b]0;hunter22\x07", "�]0;hunter22�"),
    ],
)
def test_a_redirect_is_named_and_not_followed(location: str, shown: str) -> None:
    refused = verdict(Answer(status=301, location=location), AT)
    assert refused is not None
    assert not refused.again
    assert refused.error == (
        f"answered 301, a redirect to {shown}, which is not followed; set the target's url to "
        "where it should go"
    )


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("0", 0),
        ("7", 7),
        (" 120 ", 120),
        ("999999999999", LONGEST_WAIT),
        ("9" * 5000, LONGEST_WAIT),
        (format_datetime(AT + timedelta(seconds=90), usegmt=True), 90),
        (format_datetime(AT - timedelta(seconds=90), usegmt=True), 0),
        ("Thu, 01 Jan 2026 13:00:30 +0100", 30),
        ("Thu, 01 Jan 2026 12:00:30 -0000", 30),
        ("Thu, 01 Jan 2099 12:00:00 GMT", LONGEST_WAIT),
        (None, 0),
        ("", 0),
        ("soon", 0),
        ("-5", 0),
        ("1e9", 0),
        ("٧", 0),
        ("Thu, 99 Jan 2026 12:00:00 GMT", 0),
        ("Thu, 01 Jan 99999 12:00:00 GMT", 0),
        ("Thu, 01 Jan 2026 12:00:00 +9999999999", 0),
    ],
)
def test_how_long_they_ask_us_to_wait(said: str | None, seconds: float) -> None:
    assert wait_asked_for(said, AT) == seconds


@given(st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d+ [A-Z][a-z]{2} \d+ [\d:]+ [\w+-]+"))
def test_whatever_they_ask_for_is_bounded(said: str) -> None:
    assert 0 <= wait_asked_for(said, AT) <= LONGEST_WAIT


@given(st.datetimes(timezones=st.just(UTC)))
def test_any_date_they_name_is_bounded(moment: datetime) -> None:
    assert 0 <= wait_asked_for(format_datetime(moment), AT) <= LONGEST_WAIT
