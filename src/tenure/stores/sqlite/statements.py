"""The SQL, by name, from ``queries.sql``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any

import apsw

from tenure.model.errors import StoreIncompatible
from tenure.stores.sqlite.rows import HEAD_COLUMNS

DELIVERY = (
    "json_array(d.id, r.run_id, r.workflow_name, json(s.callbacks), d.target, json(d.event), "
    "d.run_status, d.state, d.attempts, d.due_at, d.settled_at, d.died_at, d.last_error, "
    "d.redelivery, d.token, d.settled_token, d.seq, d.number)"
)
"""One text for all of it, and for many: every row that is handed over by itself costs a change of
hands of the interpreter, while the event loop wants it."""
DELIVERY_TABLES = "deliveries d join runs r on r.seq = d.seq join run_specs s on s.seq = d.seq"
_FRAGMENTS = {
    "head": HEAD_COLUMNS,
    "delivery": DELIVERY,
    "delivery_tables": DELIVERY_TABLES,
}
_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


def load(text: str) -> dict[str, str]:
    """Statements keyed by name; a comment between name and statement is for the reader."""
    parts = _NAME.split(text)[1:]
    return {
        name: "\n".join(
            line for line in body.splitlines() if line.strip() and not line.startswith("--")
        )
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


def _load_shipped() -> dict[str, str]:
    text = (files("tenure.stores.sqlite") / "queries.sql").read_text(encoding="utf-8")
    for name, fragment in _FRAGMENTS.items():
        text = text.replace(f"{{{name}}}", fragment)
    return load(text)


SQL = _load_shipped()

Row = tuple[Any, ...]


class Statements:
    """The named statements on one connection.

    Writes may be gathered and done together: many rows of one statement at once cost a fraction of
    as many calls. Whoever gathers must ``flush`` before the commit, or ``drop`` after a failure.

    Looking for a text that cannot be encoded finds nothing: it was never stored.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._execute = connection.execute
        self._executemany = connection.executemany
        self._changes = connection.changes
        self._gathered: dict[str, list[Row]] = {}

    def later(self, name: str, *values: Any) -> None:
        gathered = self._gathered.get(name)
        if gathered is None:
            self._gathered[name] = [values]
        else:
            gathered.append(values)

    def flush(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for name, values in gathered.items():
            self._executemany(SQL[name], values)

    def drop(self) -> bool:
        """Whether there was anything."""
        gathered, self._gathered = self._gathered, {}
        return bool(gathered)

    def do(self, name: str, *values: Any) -> None:
        self._execute(SQL[name], values)

    def count(self, name: str, *values: Any) -> int:
        """How many rows it changed."""
        self._execute(SQL[name], values)
        return self._changes()

    def written(self, name: str, *values: Any) -> Row | None:
        """What it returns of the row it wrote, if it wrote one."""
        return self._execute(SQL[name], values).fetchone()

    def all(self, name: str, *values: Any) -> list[Row]:
        return self.built(SQL[name], values)

    def each(self, name: str, *values: Any) -> Iterator[Row]:
        """Row by row, for whoever may stop before the end."""
        return self.each_built(SQL[name], values)

    def first(self, name: str, *values: Any) -> Row | None:
        try:
            return self._execute(SQL[name], values).fetchone()
        except UnicodeEncodeError:
            return None

    def one(self, name: str, *values: Any) -> Row:
        """For a row that is there, or this database is not ours."""
        row: Row | None = self._execute(SQL[name], values).fetchone()
        if row is None:
            raise StoreIncompatible(f"the database lacks a row that {name} needs")
        return row

    def built(self, statement: str, values: Sequence[Any]) -> list[Row]:
        """A statement put together from fixed fragments; values are always bound."""
        return list(self.each_built(statement, values))

    def each_built(self, statement: str, values: Sequence[Any]) -> Iterator[Row]:
        try:
            return iter(self._execute(statement, values))
        except UnicodeEncodeError:
            return iter(())
