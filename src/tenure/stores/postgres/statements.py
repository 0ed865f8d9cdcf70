"""The SQL, by name, from ``queries.sql``."""

from __future__ import annotations

import re
from importlib.resources import files

_NAME = re.compile(r"^-- (name|fragment): (\w+)\s*$", re.MULTILINE)
_USE = re.compile(r"\{(\w+)\}")


def load(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Statements and fragments keyed by name, with the fragments they use in their place; a comment
    between name and statement is for the reader."""
    parts = _NAME.split(text)[1:]
    fragments: dict[str, str] = {}
    statements: dict[str, str] = {}
    for kind, name, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        lines = (line for line in body.splitlines() if not line.startswith("--"))
        sql = _USE.sub(lambda used: fragments[used[1]], "\n".join(lines).strip())
        (fragments if kind == "fragment" else statements)[name] = sql
    return statements, fragments


SQL, FRAGMENTS = load((files("tenure.stores.postgres") / "queries.sql").read_text(encoding="utf-8"))
