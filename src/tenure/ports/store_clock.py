"""What time it is for a store."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol, runtime_checkable


@runtime_checkable
class StoreClock(Protocol):
    """Without it nobody can tell how far a machine's clock is from the one that stamps records."""

    async def store_time(self) -> datetime:
        """By that clock, at the moment of the question; UTC."""
        ...
