"""Modes as people write them: what is meant, or a refusal."""

from __future__ import annotations

import stat
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.actions.files import mode_in, read_mode, show_mode

MODES = st.integers(0, 0o7777)
USUAL = "0644 0755 0600 0640 0700 0750 0664 0660 0775 0777 0444 0440 0400 0500 0555 0711 1777 2755"


@pytest.mark.parametrize("text", USUAL.split())
def test_a_usual_mode_is_read_however_it_is_written_as_text(text: str) -> None:
    mode = int(text, 8)
    assert read_mode(text) == mode
    assert read_mode(f"0{mode:03o}") == mode
    assert read_mode(f"{mode:o}") == mode


@pytest.mark.parametrize("text", USUAL.split())
def test_a_usual_mode_written_as_octal_number_is_read(text: str) -> None:
    """As the file's reader gives it: ``0644`` is 420."""
    assert read_mode(int(text, 8)) == int(text, 8)


@pytest.mark.parametrize("text", USUAL.split())
def test_a_usual_mode_written_without_its_zero_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="may be meant as"):
        read_mode(int(text))


@pytest.mark.parametrize(
    "value",
    [
        *("", "0", "44", "+x", "u=rw", "rw-r--r--", "0o644", "0888", "644 ", "\u0660\u0666\u0664"),
        *("77777", "077777", "-644", "6.4"),
        *("420", "493", "111"),  # a number that became text on its way; or nobody's wish
        *(True, None, 6.44, [420], -1, 0o10000),
    ],
)
def test_what_is_no_mode(value: Any) -> None:
    with pytest.raises(ValueError, match="no file mode"):
        read_mode(value)


@given(MODES)
def test_text_with_its_zero_is_always_read(mode: int) -> None:
    assert read_mode(f"0{mode:03o}") == mode


@given(MODES)
def test_a_number_is_itself_or_refused(mode: int) -> None:
    try:
        assert read_mode(mode) == mode
    except ValueError:
        assert int(str(mode), 8) != mode


@given(MODES)
def test_what_ls_shows_is_read_back(mode: int) -> None:
    for end in ("", ".", "+", "@"):
        assert mode_in(stat.filemode(stat.S_IFREG | mode) + end) == mode


@pytest.mark.parametrize("letters", ["", "-", "ls:", "-rw-r--r-", "-rwxrwxrwz"])
def test_what_is_no_mode_of_ls(letters: str) -> None:
    assert mode_in(letters) is None


def test_modes_are_shown_with_four_digits() -> None:
    assert [show_mode(mode) for mode in (0, 0o644, 0o4755)] == ["0000", "0644", "4755"]
