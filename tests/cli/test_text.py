"""Text of strangers on a terminal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.cli.display.text import (
    ago,
    between,
    cells,
    neutral,
    one_line,
    padded,
    place_of,
    shorten,
    took,
)

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hgone", "gone"),
        ("\x1b]0;new title\x07rest", "rest"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;never ends", "�]0;never ends"),
        ("\x1b]0;not over\nlines\x07", "�]0;not over\nlines�"),
        ("\x1bPq device \x1b\\x", "x"),
        ("\x9b31mred", "�31mred"),
        ("bell\x07back\x08", "bell�back�"),
        ("rtl \u202egnp.exe", "rtl �gnp.exe"),
        ("lone \ud800 surrogate", "lone � surrogate"),
        ("äöü 漢字 🎉", "äöü 漢字 🎉"),
    ],
)
def test_nothing_that_steers_a_terminal_is_left(text: str, shown: str) -> None:
    assert neutral(text) == shown


@given(st.text(alphabet=st.characters(), max_size=60))
def test_neutral_text_stays_neutral(text: str) -> None:
    once = neutral(text)
    assert neutral(once) == once
    assert not set(once) & {chr(n) for n in (*range(9), *range(11, 32), *range(127, 160))}


def test_one_line_has_no_second() -> None:
    assert one_line("a\n  b\t\x1b[1mc\r\n") == "a b c"


@given(st.text(max_size=40), st.integers(min_value=1, max_value=30))
def test_shortened_text_fits(text: str, width: int) -> None:
    assert cells(shorten(text, width)) <= max(width, 1)


def test_wide_characters_take_two_columns() -> None:
    assert cells("漢字") == 4
    assert cells("é") == 1
    assert padded("漢", 4) == "漢  "
    assert shorten("漢字漢字", 5) == "漢字…"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-1, "0.0s"),
        (0.04, "0.0s"),
        (12.34, "12.3s"),
        (59.94, "59.9s"),
        (59.96, "1m 00s"),
        (125, "2m 05s"),
        (3599.6, "1h 00m"),
        (3840, "1h 04m"),
        (86400 * 3 + 7200, "3d 02h"),
    ],
)
def test_durations(seconds: float, shown: str) -> None:
    assert took(seconds) == shown


def test_times_that_are_not_known_are_empty() -> None:
    assert between(None, NOW) == between(NOW, None) == ago(None, NOW) == ""
    assert between(NOW, NOW + timedelta(seconds=2)) == "2.0s"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-5, "0s ago"), (59, "59s ago"), (60, "1m ago"), (7200, "2h ago"), (200_000, "2d ago")],
)
def test_how_long_ago(seconds: int, shown: str) -> None:
    assert ago(NOW - timedelta(seconds=seconds), NOW) == shown


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("memory:", "memory:"),
        ("sqlite:////var/lib/runs.db", "/var/lib/runs.db"),
        ("sqlite:////with%20space/runs.db", "/with space/runs.db"),
        ("postgresql://me:pass@db:5432/runs", "postgresql://me:***@db:5432/runs"),
        ("postgresql://me:p@ss@db/runs", "postgresql://me:***@db/runs"),
        ("postgresql://db/runs", "postgresql://db/runs"),
        ("sqlite:///runs.db?key=hunter2", "sqlite:///runs.db?key=***"),
    ],
)
def test_a_place_never_shows_a_password(url: str, place: str) -> None:
    assert place_of(url) == place
