"""A run's history."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, runtime_checkable

from tenure.model.events import Position, RecordedEvent


@runtime_checkable
class EventLog(Protocol):
    """Without it there is no history to stream, only the newest snapshot."""

    async def read_events(
        self, run_id: str, after: Position = Position(), *, limit: int = 1000
    ) -> list[RecordedEvent]:
        """Events after ``after``, oldest first, in order of (version, seq). ``RunNotFound``.

        A version that is readable in ``get_run`` has all its events here.
        """
        ...


@runtime_checkable
class RunVersions(Protocol):
    """Without it a gateway asks for each run that is watched."""

    async def versions_of(self, run_ids: Collection[str]) -> dict[str, int]:
        """The versions of those that exist, in one query however many they are. ``EventLog`` has
        all events of each version by then.
        """
        ...
