"""What would change in a file is shown so that it can be read, whatever the file holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.actions.files import LARGEST, difference

TEXTS = st.text(st.sampled_from("ab\n\r\x1b\u2028é"), max_size=12).map(str.encode)


def body(old: bytes, new: bytes) -> list[str]:
    shown = (difference(old, new, "/etc/x") or "").split("\n")
    assert shown[:2] == ["--- /etc/x\tnow", "+++ /etc/x\tthen"]
    return shown[3:]


def test_lines_that_go_and_come() -> None:
    assert body(b"a\nb\nc\n", b"a\nB\nc\n") == [" a", "-b", "+B", " c"]


def test_the_end_of_the_last_line_counts() -> None:
    unended = "\\ No newline at end of file"
    assert body(b"a", b"a\n") == ["-a", unended, "+a"]
    assert body(b"a\n", b"a") == ["-a", "+a", unended]
    assert body(b"", b"a") == ["+a", unended]


def test_characters_that_steer_a_terminal_are_spelled_out() -> None:
    assert body(b"", "a\tb\r\n\x1b[2J\u2028\n".encode()) == ["+a\tb\\r", "+\\x1b[2J\\u2028"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b"a\r\nb\r\n", b"a\nb\n", "now CRLF (2 lines), then LF (2 lines)"),
        (b"a\nb", b"a\r\nb", "now LF (1 line), then CRLF (1 line)"),
        (
            b"a\rb\n",
            b"a\nb\r\n",
            "now LF (1 line) and CR (1 line), then CRLF (1 line) and LF (1 line)",
        ),
        (b"\r\n", b"\n", "now CRLF (1 line), then LF (1 line)"),
    ],
)
def test_line_ends_are_told_in_words_if_nothing_else_differs(
    old: bytes, new: bytes, words: str
) -> None:
    shown = (difference(old, new, "/etc/x") or "").split("\n")
    assert shown == ["--- /etc/x\tnow", "+++ /etc/x\tthen", f"only line ends differ: {words}"]


def test_the_name_of_a_file_is_one_line_too() -> None:
    for new in (b"a\r\n", b"b\n"):
        shown = (difference(b"a\n", new, "x\n\x1b") or "").split("\n")
        assert shown[:2] == ["--- x\\n\\x1b\tnow", "+++ x\\n\\x1b\tthen"]


def test_line_ends_are_spelled_out_if_more_differs() -> None:
    assert body(b"a\r\nb\r\n", b"a\nB\n") == ["-a\\r", "-b\\r", "+a", "+B"]
    assert body(b"a\r\n", b"a") == ["-a\\r", "+a", "\\ No newline at end of file"]


def test_nothing_differs() -> None:
    assert difference(b"a\n", b"a\n", "x") is None


def test_a_long_difference_is_cut() -> None:
    shown = (difference(b"", b"a\n" * 1000, "x") or "").split("\n")
    assert len(shown) == 201
    assert shown[-1] == "… and 803 more lines"


def test_what_is_no_text_or_too_long_is_not_compared() -> None:
    for data in (b"\xff", b"a\0b", b"a" * (LARGEST + 1), b"\n" * 2001):
        assert difference(data, b"a", "x") is None
        assert difference(b"a", data, "x") is None


@given(TEXTS, TEXTS)
def test_every_line_of_it_is_one_line(old: bytes, new: bytes) -> None:
    shown = difference(old, new, "x")
    assert (shown is None) == (old == new)
    lines = (shown or "").split("\n")
    assert lines == (shown or "").splitlines() or not shown
    assert all(line.replace("\t", "").isprintable() for line in lines)
