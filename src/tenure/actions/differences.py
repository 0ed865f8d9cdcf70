"""What would change in a file, for people."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from difflib import unified_diff
from itertools import chain, islice

LARGEST = 64 * 1024
"""Bytes of a file that is compared line by line."""
_MOST_LINES = 2000
_SHOWN = 200
_HEAD = 2
_UNENDED = "\\ No newline at end of file"
_LINE_END = re.compile(rb"\r\n|\n|\r")
_CALLED = {b"\r\n": "CRLF", b"\n": "LF", b"\r": "CR"}


def difference(old: bytes, new: bytes, place: str) -> str | None:
    """A unified diff, each of its lines one line of text whatever the files hold, cut where it
    stops helping; words, if all that differs are line ends, for every line would be in it and look
    alike. ``None`` if they are no text or too long."""
    before, after = _lines(old), _lines(new)
    if before is None or after is None:
        return None
    lines = unified_diff(before, after, place, place, "now", "then")
    if old != new and _LINE_END.sub(b"\n", old) == _LINE_END.sub(b"\n", new):
        words = f"only line ends differ: now {_ends(old)}, then {_ends(new)}\n"
        lines = chain(islice(lines, _HEAD), [words])
    shown = [text for line in islice(lines, _SHOWN) for text in _readable(line)]
    rest = sum(1 for _ in lines)
    if rest:
        shown.append(f"… and {rest} more line{'s'[: rest != 1]}")
    return "\n".join(shown) or None


def is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def _lines(data: bytes) -> list[str] | None:
    if len(data) > LARGEST or data.count(b"\n") > _MOST_LINES or not is_text(data):
        return None
    lines = [f"{line}\n" for line in data.decode().split("\n")]
    lines[-1] = lines[-1].removesuffix("\n")
    return lines if lines[-1] else lines[:-1]


def _ends(data: bytes) -> str:
    count = Counter(_LINE_END.findall(data))
    return " and ".join(
        f"{name} ({count[end]} line{'s'[: count[end] != 1]})"
        for end, name in _CALLED.items()
        if count[end]
    )


def _readable(line: str) -> Iterator[str]:
    text = line.removesuffix("\n")
    yield text if text.isprintable() else "".join(map(_printable, text))
    if text == line:
        yield _UNENDED


def _printable(character: str) -> str:
    shown = character.isprintable() or character == "\t"
    return character if shown else repr(character)[1:-1]
