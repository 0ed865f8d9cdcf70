"""What an answer means, and how it is told: short, on one line, harmless."""

from __future__ import annotations

from datetime import timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.notifiers.http.answer import (
    MAX_WAIT_S,
    Answer,
    excerpt,
    masked,
    retry_after,
    verdict,
)
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


@pytest.mark.parametrize("status", [301, 400, 410])
def test_a_final_answer_has_no_wait(status: int) -> None:
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
        ("999999999999", MAX_WAIT_S),
        ("9" * 5000, MAX_WAIT_S),
        (format_datetime(AT + timedelta(seconds=90), usegmt=True), 90),
        (format_datetime(AT - timedelta(seconds=90), usegmt=True), 0),
        ("Thu, 01 Jan 2026 13:00:30 +0100", 30),
        ("Thu, 01 Jan 2026 12:00:30 -0000", 30),
        ("Thu, 01 Jan 2099 12:00:00 GMT", MAX_WAIT_S),
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
def test_how_long_they_ask_us_to_wait(said: str, seconds: float) -> None:
    assert retry_after(said, AT) == seconds


# -- words -----------------------------------------------------------------------------------------


def test_a_page_becomes_a_line() -> None:
    assert excerpt(b"<h1>Bad\n  Gateway</h1>\r\n\r\n\tnginx\n") == "<h1>Bad Gateway</h1> nginx"


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"", ""),
        (b"\n \n", ""),
        ("größer 大".encode(), "größer 大"),
        (b"a\x1b[31mb\x07", "a�[31mb�"),
        ("left\u202egnorw".encode(), "left�gnorw"),
        (b"\x1f\x8b\x08\x00\x00\x00ok", "�ok"),
        (b"\xff\xfe\xfd", "�"),
    ],
)
def test_nothing_in_it_steers_a_terminal(body: bytes, shown: str) -> None:
    assert excerpt(body) == shown


@given(st.binary(max_size=9000), st.lists(st.text()))
def test_it_is_always_short_and_printable(body: bytes, secrets: list[str]) -> None:
    shown = excerpt(body, secrets)
    assert shown.isprintable()
    assert len(shown) <= 161


def test_secrets_are_masked_with_the_words_they_consist_of() -> None:
    said = "you sent 'Bearer tok-0123456789', tok-0123456789 is not valid"
    assert masked(said, ["Bearer tok-0123456789"]) == "you sent '***', *** is not valid"


def test_the_longer_secret_goes_first() -> None:
    assert masked("abcd-efgh", ["abcd", "abcd-efgh"]) == "***"


def test_a_secret_is_not_cut_in_half_before_it_is_masked() -> None:
    secret = "s3cr3t-" * 10
    shown = excerpt(b"x" * 130 + secret.encode(), [secret])
    assert shown == "x" * 130 + "***"


def test_values_too_short_to_be_secrets_do_not_riddle_the_text() -> None:
    assert masked("answered 1 of 2", ["1", "of"]) == "answered 1 of 2"
