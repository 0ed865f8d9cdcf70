"""Here-documents: ``<<EOF`` says how one ends, and its body begins after the line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tenure.workflow.shell_units import BREAKS, Unit, Units


class Mark(NamedTuple):
    text: str
    quoted: bool
    """Then nothing in the body is expanded."""
    stripped: bool
    """``<<-``: of tabs, so that it can be indented."""

    def ends(self, line: list[Unit]) -> bool:
        if any(isinstance(unit, int) for unit in line):
            return False
        text = "".join(str(unit) for unit in line)
        return (text.lstrip("\t") if self.stripped else text) == self.text


def read_mark(units: Units) -> Mark:
    """What follows ``<<``: ``EOF``, ``-EOF``, ``'EOF'``."""
    stripped = units.sees("-")
    units.at += stripped
    while units.left and units.here in (" ", "\t"):
        units.at += 1
    text, quoted, quote = "", False, ""
    while units.left:
        unit = units.here
        if isinstance(unit, int) or (not quote and unit in BREAKS):
            break
        if unit == quote:
            quote = ""
        elif unit in "'\"" and not quote:
            quote, quoted = unit, True
        elif unit == "\\" and not quote:
            quoted = True
        else:
            text += unit
        units.at += 1
    return Mark(text, quoted, stripped)


def read_bodies(units: Units, marks: list[Mark]) -> Iterator[tuple[Mark, list[Unit]]]:
    """They follow each other; the last may have no end but the script's."""
    for mark in marks:
        start = end = units.at
        while units.left:
            end = units.at
            if mark.ends(units.take_line()):
                break
            end = units.at
        yield mark, units.between(start, end)
