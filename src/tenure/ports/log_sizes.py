"""How much output there is, of many tasks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, runtime_checkable

from tenure.ports.log_store import LogKey

LogName = tuple[str, LogKey]
"""A run's id, and one of its streams."""


@runtime_checkable
class LogSizes(Protocol):
    """Without it whoever follows the output of many tasks reads on in each."""

    async def sizes_of(self, names: Collection[LogName]) -> dict[LogName, int]:
        """Bytes of each stream, in one question however many they are. Zero if nobody wrote it;
        missing if there is no such run."""
        ...
