"""Output of tasks as lines to show, in blocks: millions of short lines cost little more than their
bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from tenure.cli.display.text import neutral

Key = TypeVar("Key")

_EVERYDAY = bytes(range(0x20, 0x7F)) + b"\n"


class LineCutter(Generic[Key]):
    """Hands on whole lines, those of a piece together and without the last one's end. What has no
    end yet waits for it, within bounds."""

    def __init__(self, show: Callable[[Key, bytes], None], longest: int) -> None:
        self._show = show
        self._longest = longest
        self._open: dict[Key, bytes] = {}

    def add(self, key: Key, data: bytes) -> None:
        data = self._open.pop(key, b"") + data
        end = data.rfind(b"\n")
        rest = len(data) - end - 1
        if rest > self._longest:
            end = len(data)
        elif rest:
            self._open[key] = data[end + 1 :]
        if end >= 0:
            self._show(key, data[:end])

    def end(self, wanted: Callable[[Key], bool] = lambda key: True) -> None:
        """Hand on what will get no end any more."""
        for key in [key for key in self._open if wanted(key)]:
            self._show(key, self._open.pop(key))


def lines_as_seen(data: bytes) -> str:
    """Lines as a terminal would leave them: what was overwritten after ``\\r`` is gone."""
    text = data.decode("utf-8", "replace")
    if _is_everyday(data):
        return text
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return neutral(text).expandtabs(8)


def lines_as_kept(data: bytes) -> str:
    """Lines with all that was printed, made safe."""
    text = data.decode("utf-8", "replace")
    if _is_everyday(data):
        return text
    return neutral(text.replace("\r\n", "\n").removesuffix("\r"))


def behind(before: str, lines: str) -> str:
    """Each line behind ``before``."""
    return before + lines.replace("\n", f"\n{before}")


def _is_everyday(data: bytes) -> bool:
    """Nearly all output is: letters that steer nothing. Looking is much cheaper than mending."""
    return not data.translate(None, _EVERYDAY)
