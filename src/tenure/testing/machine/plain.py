"""Records as plain data, the status rules as plain tables, and how two records differ.

The tables say again, in words of their own, what SPEC 2 says; they share nothing with
``tenure.model.transitions``, so that a slip there is found here.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import Enum
from typing import Any

from msgspec import Struct

Plain = dict[str, Any]

NOW = "<the instant of this write>"
"""Stands for a time only the store knows until the record is read back."""

RUN_ENDS = frozenset({"success", "failed", "canceled", "interrupted"})
STEP_ENDS = RUN_ENDS | {"skipped"}
HOST_ENDS = STEP_ENDS | {"unreachable"}

RUN_MAY = {
    "queued": frozenset({"running", "failed", "canceled", "interrupted"}),
    "running": RUN_ENDS,
}
STEP_MAY = {
    "pending": frozenset({"running", "skipped", "canceled", "interrupted"}),
    "running": STEP_ENDS,
}
HOST_MAY = {
    "pending": frozenset({"running", "skipped", "canceled", "interrupted", "unreachable"}),
    "running": HOST_ENDS | {"unknown"},
    "unknown": HOST_ENDS | {"running"},
}

# What becomes of the rest when a run ends: never reached, and cut short while running.
UNREACHED = {
    "success": "skipped",
    "failed": "skipped",
    "skipped": "skipped",
    "canceled": "canceled",
    "interrupted": "interrupted",
}
HOST_CUT = {"failed": "unknown", "canceled": "unknown", "interrupted": "interrupted"}


def plain(value: Any) -> Any:
    """Dicts, lists, strings and numbers; times stay times."""
    if isinstance(value, Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.value if isinstance(value, Enum) else value


def stamped(value: Any, at: datetime) -> Any:
    """``value`` with every ``NOW`` replaced."""
    if isinstance(value, dict):
        return {key: stamped(item, at) for key, item in value.items()}
    if isinstance(value, list):
        return [stamped(item, at) for item in value]
    return at if value == NOW else value


def differences(expected: Any, seen: Any, where: str = "") -> Iterator[str]:
    """Every place where the two disagree, in words."""
    if isinstance(expected, dict) and isinstance(seen, dict):
        for key in {**expected, **seen}:
            place = f"{where}.{key}".lstrip(".")
            if key not in seen or key not in expected:
                yield f"{place} is only in {'the model' if key in expected else 'the store'}"
            else:
                yield from differences(expected[key], seen[key], place)
    elif isinstance(expected, list) and isinstance(seen, list) and len(expected) == len(seen):
        for position, (one, other) in enumerate(zip(expected, seen, strict=True)):
            yield from differences(one, other, f"{where}[{position}]")
    elif expected != seen:
        yield f"{where}: the model says {expected!r}, the store {seen!r}"


def check_same(what: str, expected: Any, seen: Any) -> None:
    found = list(differences(expected, seen))
    assert not found, f"{what}:\n  " + "\n  ".join(found)
