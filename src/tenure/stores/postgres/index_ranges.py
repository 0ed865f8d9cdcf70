"""Conditions and orders that one index serves, and no other.

``status = $1 order by seq desc limit 50`` looks like a range of an index of (status, seq). But a
column that is known to be equal is no part of the order, so the planner may as well take an index
of (seq) alone and read past all that have another status: it does, if statistics say that many have
this one. Written as a range of (status, seq), in that order, nothing else will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class IndexRange(NamedTuple):
    """Rows with these values from the highest number down, for ``where`` and ``order by``."""

    condition: str
    order: str


def newest_of(
    equal: Sequence[tuple[str, str]], number: str, below: str, lowest: str = "0"
) -> IndexRange:
    """``equal``: columns and their values. All of it is SQL, with values bound."""
    columns = [*(column for column, _ in equal), number]
    values = ", ".join(value for _, value in equal)
    row = f"({', '.join(columns)})"
    return IndexRange(
        f"{row} < ({values}, {below}) and {row} >= ({values}, {lowest})",
        ", ".join(f"{column} desc" for column in columns),
    )
