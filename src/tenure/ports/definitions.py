"""What a run executes."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Definitions(Protocol):
    """Without it no run can be taken over or retried: nobody else knows its workflow."""

    async def get_definition(self, run_id: str) -> str | None:
        """The exact text given at creation, ``None`` if none was. ``RunNotFound``."""
        ...
