"""Words for failures: short, on one line, harmless."""

from __future__ import annotations

import errno
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.notifiers.http.failures import (
    NoConnection,
    NoEndOfIt,
    NoLongerSending,
    NotHttp,
    NotResolved,
    Unanswered,
)
from tenure.notifiers.http.wording import excerpt, masked, trouble


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


def test_a_secret_across_the_lines_of_an_answer() -> None:
    assert masked("got: one two-three-four", ["one two-three-four"]) == "got: ***"


def test_values_too_short_to_be_secrets_do_not_riddle_the_text() -> None:
    assert masked("answered 1 of 2", ["1", "of"]) == "answered 1 of 2"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NotResolved("Name or\nservice"), "its name cannot be resolved: Name or service"),
        (NoConnection(), "no connection within 5 s"),
        (TimeoutError(), "no answer within 15 s"),
        (TimeoutError(errno.ETIMEDOUT, "x"), "connection failed: Connection timed out"),
        (
            ConnectionResetError(errno.ECONNRESET, "x"),
            "connection failed: Connection reset by peer",
        ),
        (ConnectionResetError(), "connection lost"),
        (Unanswered(), "it closed the connection without an answer"),
        (NotHttp("Invalid HTTP version"), "its answer is not HTTP: Invalid HTTP version"),
        (NoEndOfIt("it sends without end"), "it sends without end"),
        (NoLongerSending("not sent: the end"), "not sent: the end"),
        (ssl.SSLError(1, "x"), "no TLS connection: the handshake failed"),
    ],
)
def test_why_there_was_no_answer(error: OSError, said: str) -> None:
    assert trouble(error, connect_timeout=5.0, total_timeout=15.0) == said
