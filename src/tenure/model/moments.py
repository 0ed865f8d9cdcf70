"""Points in time that can be kept: everybody must be able to write them down and read them back."""

from __future__ import annotations

from datetime import UTC, datetime

_FIRST = datetime(2, 1, 1, tzinfo=UTC)
_LAST = datetime(9998, 12, 31, tzinfo=UTC)
"""Beyond, the same moment has no form in some other time zone."""


def why_not_kept(moment: datetime) -> str | None:
    if moment.tzinfo is None:
        return f"{moment.isoformat()} does not say its time zone"
    if not _FIRST <= moment <= _LAST:
        return f"{moment.isoformat()} is not between the years 2 and 9998"
    return None
