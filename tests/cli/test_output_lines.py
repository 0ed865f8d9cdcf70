"""Output of tasks, cut into lines and made safe in blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.cli.display.lines import LineCutter, behind, lines_as_kept, lines_as_seen
from tenure.cli.display.text import neutral


class Shown:
    """What a cutter hands on, line by line."""

    def __init__(self, longest: int = 1000) -> None:
        self.lines: list[tuple[str, bytes]] = []
        self.cutter: LineCutter[str] = LineCutter(self.take, longest)

    def take(self, key: str, lines: bytes) -> None:
        self.lines += [(key, line) for line in lines.split(b"\n")]


@given(st.lists(st.binary(max_size=8).map(lambda data: data.replace(b"\x00", b"\n"))))
def test_however_output_is_cut_into_pieces_its_lines_are_the_same(pieces: list[bytes]) -> None:
    shown = Shown()
    for piece in pieces:
        shown.cutter.add("a", piece)
    shown.cutter.end()
    whole = b"".join(pieces)
    expected = whole.removesuffix(b"\n").split(b"\n") if whole else []
    assert [line for _, line in shown.lines] == expected


def test_streams_do_not_mix() -> None:
    shown = Shown()
    shown.cutter.add("a", b"one ")
    shown.cutter.add("b", b"two\nthree")
    shown.cutter.add("a", b"line\n")
    shown.cutter.end(lambda key: key == "b")
    assert shown.lines == [("b", b"two"), ("a", b"one line"), ("b", b"three")]


def test_a_line_without_end_does_not_wait_for_ever() -> None:
    shown = Shown(longest=10)
    for _ in range(5):
        shown.cutter.add("a", b"12345")
    assert [line for _, line in shown.lines] == [b"1234512345" + b"12345"]
    shown.cutter.add("a", b"\n" + b"x" * 11)
    assert [line for _, line in shown.lines][1:] == [b"1234512345", b"x" * 11]


@pytest.mark.parametrize(
    ("printed", "seen", "kept"),
    [
        (b"plain", "plain", "plain"),
        (b"two\nlines", "two\nlines", "two\nlines"),
        (b"10%\r20%\r30%", "30%", "10%�20%�30%"),
        (b"done\r", "done", "done"),
        (b"a\r\nb\r\r\nc", "a\nb\nc", "a\nb�\nc"),
        (b"\r", "", ""),
        (b"50%\r\x1b[K", "", "50%�"),
        (b"a\tb\nab\tc", "a       b\nab      c", "a\tb\nab\tc"),
        (b"\x1b[31mred\x1b[0m\nno\x07ise", "red\nno�ise", "red\nno�ise"),
        (b"\xff\xfe", "��", "��"),
        ("äöü\n漢字".encode(), "äöü\n漢字", "äöü\n漢字"),
    ],
)
def test_lines_as_a_terminal_would_leave_them_and_as_they_were(
    printed: bytes, seen: str, kept: str
) -> None:
    assert lines_as_seen(printed) == seen
    assert lines_as_kept(printed) == kept


@given(st.lists(st.text(st.characters(max_codepoint=0x7F)).map(lambda t: t.replace("\n", ""))))
def test_a_block_is_shown_as_its_lines_would_be(lines: list[str]) -> None:
    """The quick way for a whole block changes nothing."""
    block = "\n".join(lines).encode()
    assert lines_as_seen(block).split("\n") == [
        lines_as_seen(line.encode()) for line in (lines or [""])
    ]
    assert neutral(lines_as_seen(block)) == lines_as_seen(block)


def test_every_line_stands_behind_its_label() -> None:
    assert behind("a | ", "one\n\ntwo") == "a | one\na | \na | two"
