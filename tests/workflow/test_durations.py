"""Durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.workflow.durations import LONGEST, parse_duration, show_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30.0),
        ("1h30m", 5400.0),
        ("300ms", 0.3),
        ("0.5s", 0.5),
        (".5s", 0.5),
        ("2m", 120.0),
        ("1.5h", 5400.0),
        ("1d", 86400.0),
        ("100us", 0.0001),
        ("100µs", 0.0001),
        ("1ns", 1e-9),
        ("+5s", 5.0),
        (" 5s ", 5.0),
        ("1h1m1s1ms", 3661.001),
        ("0s", 0.0),
    ],
)
def test_reads(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("30", "has no unit: write 30s"),
        ("1.5", "has no unit: write 1.5s"),
        ("-5s", "is negative: write it without the sign, like 30s, or leave it out"),
        ("", "is not a duration: write it like 30s"),
        ("abc", "is not a duration"),
        ("5 s", "is not a duration"),
        ("5s5", "is not a duration"),
        ("5S", "is not a duration"),
        ("1e3s", "is not a duration"),
        ("٣s", "is not a duration"),
        ("200000d", "is longer than a century"),
        ("9" * 18 + "h", "is longer than a century"),
        ("9" * 90 + "h", "is longer than a century"),
        ("9" * 400 + "h", "is not a duration"),
    ],
)
def test_refuses(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (30, "30s"),
        (90, "1m30s"),
        (5400, "1h30m"),
        (86400, "24h"),
        (0.5, "500ms"),
        (0.0005, "0.5ms"),
        (61.5, "1m1.5s"),
        (-30, "-30s"),
    ],
)
def test_shows_shortly(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text


def test_no_text_for_what_is_no_duration() -> None:
    with pytest.raises(ValueError, match="inf is not a duration"):
        show_duration(float("inf"))


@given(st.floats(1e-9, LONGEST) | st.just(0.0))
def test_what_is_shown_is_read_back_exactly(seconds: float) -> None:
    assert parse_duration(show_duration(seconds)) == seconds
