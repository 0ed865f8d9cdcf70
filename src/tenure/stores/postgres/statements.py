"""Statements by name, from ``queries.sql``; parts of the statements that are built."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, NamedTuple

_NAME = re.compile(r"^-- (name|fragment): (\w+)\s*$", re.MULTILINE)
_USE = re.compile(r"\{(\w+)\}")

Call = tuple[Any, ...]
"""A statement's name and its values."""


def load(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Statements and fragments by name, without comments and with fragments inserted."""
    parts = _NAME.split(text)[1:]
    fragments: dict[str, str] = {}
    statements: dict[str, str] = {}
    for kind, name, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        lines = (line for line in body.splitlines() if not line.startswith("--"))
        sql = _USE.sub(lambda used: fragments[used[1]], "\n".join(lines).strip())
        (fragments if kind == "fragment" else statements)[name] = sql
    return statements, fragments


SQL, FRAGMENTS = load((files("tenure.stores.postgres") / "queries.sql").read_text(encoding="utf-8"))


class Values:
    """Bound values and their placeholders."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def bind(self, value: Any) -> str:
        self.all.append(value)
        return f"${len(self.all)}"


class IndexRange(NamedTuple):
    """For ``where`` and ``order by``."""

    condition: str
    order: str


def newest_of(
    equal: Sequence[tuple[str, str]], number: str, below: str, lowest: str = "0"
) -> IndexRange:
    """A condition and an order that one index serves, and no other.

    For ``status = $1 order by seq desc limit 50`` the planner may choose an index of (seq) alone
    and read past rows with another status. A range of (status, seq), in that order, leaves no
    choice.

    ``equal``: columns and values as SQL.
    """
    columns = [*(column for column, _ in equal), number]
    values = ", ".join(value for _, value in equal)
    row = f"({', '.join(columns)})"
    return IndexRange(
        f"{row} < ({values}, {below}) and {row} >= ({values}, {lowest})",
        ", ".join(f"{column} desc" for column in columns),
    )
