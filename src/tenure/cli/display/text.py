"""Text of strangers, made safe to show.

What hosts print, and names and messages in a record, may hold anything: escape sequences that move
the cursor or rename the window, characters that reverse what is read, bytes that are no text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from unicodedata import combining, east_asian_width

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]{0,1024}(?:\x07|\x1b\\)"  # window titles, links, device strings
    r"|\x1b(?![\[\]PX^_])[0-~]"
)
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def neutral(text: str) -> str:
    """Without escape sequences; other characters that steer a terminal show as ``�``."""
    if text.isprintable() or text.replace("\n", "").isprintable():
        return text
    return _UNSAFE.sub("\ufffd", _SEQUENCE.sub("", text))


def one_line(text: str) -> str:
    return neutral(" ".join(text.split()))


def cells(text: str) -> int:
    """How many columns of a terminal it takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text
    )


def shorten(text: str, width: int) -> str:
    """In at most ``width`` columns."""
    if cells(text) <= width:
        return text
    kept, used = [], 1
    for char in text:
        used += cells(char)
        if used > width:
            break
        kept.append(char)
    return "".join(kept) + "…"


def padded(text: str, width: int) -> str:
    return text + " " * max(width - cells(text), 0)


def fitted(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """The cells of a table's row. A column without width is left out."""
    pairs = zip(row, widths, strict=True)
    return [padded(shorten(cell, width), width) for cell, width in pairs if width]


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
