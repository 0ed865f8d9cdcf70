"""How SQLite would answer a statement: by which index, or by reading a whole table."""

from __future__ import annotations

import re
from pathlib import Path

import apsw


def plan_of(path: Path, sql: str) -> list[str]:
    connection = apsw.Connection(str(path))
    return [str(row[3]) for row in connection.execute(f"explain query plan {sql}", no_values(sql))]


def no_values(sql: str) -> tuple[None, ...]:
    numbered = [int(number) for number in re.findall(r"\?(\d+)", sql)]
    return (None,) * (max(numbered) if numbered else sql.count("?"))
