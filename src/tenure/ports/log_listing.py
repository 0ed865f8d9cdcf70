"""Which output there is."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tenure.ports.log_store import LogKey


@runtime_checkable
class LogListing(Protocol):
    """Without it a reader must guess which attempts printed something."""

    async def list_logs(self, run_id: str) -> list[LogKey]:
        """Every stream somebody wrote, by step, host, item, attempt, stream. ``RunNotFound``."""
        ...
