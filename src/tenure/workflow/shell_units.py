"""A shell script with values in it, read from left to right."""

from __future__ import annotations

Unit = str | int
"""A character of the script, or the number of a value that stands there."""
BREAKS = frozenset(" \t\n;&|()<>")
"""What ends a word that is not quoted."""


class Units:
    def __init__(self, units: list[Unit]) -> None:
        self._units = units
        self.at = 0

    @property
    def left(self) -> bool:
        return self.at < len(self._units)

    @property
    def here(self) -> Unit:
        return self._units[self.at]

    def sees(self, text: str) -> bool:
        return self._units[self.at : self.at + len(text)] == list(text)

    def ahead(self, length: int) -> list[Unit]:
        return self._units[self.at : self.at + length]

    def take(self, length: int) -> list[Unit]:
        taken = self.ahead(length)
        self.at += length
        return taken

    def take_line(self) -> list[Unit]:
        """Its end is read, too, and not in the answer."""
        line = self.take(self.length_of_line())
        self.at += 1
        return line

    def length_of_line(self) -> int:
        try:
            return self._units.index("\n", self.at) - self.at
        except ValueError:
            return len(self._units) - self.at

    def length_of_single(self, *, escapes: bool) -> int:
        """Of what stands in single quotes, from here, with both of them."""
        end = self.at + 1
        while end < len(self._units) and self._units[end] != "'":
            end += 2 if escapes and self._units[end] == "\\" else 1
        return end + 1 - self.at

    def between(self, start: int, end: int) -> list[Unit]:
        return self._units[start:end]
