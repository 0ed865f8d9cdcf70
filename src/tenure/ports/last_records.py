"""The last record of a run that this process has just ended, without reading it back."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tenure.model.snapshot import RunSnapshot


@runtime_checkable
class LastRecords(Protocol):
    """Without it a run is read once more after its end."""

    def last_record(self, run_id: str) -> RunSnapshot | None:
        """The record as left by the update of this process that ended the run, equal to what
        ``get_run`` would have returned then. ``None`` if the store does not have it in memory. The
        record is handed out once: a second call returns ``None``."""
        ...
