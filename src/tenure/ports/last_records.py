"""The last record of a run that this process has just ended, without reading it back."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tenure.model.snapshot import RunSnapshot


@runtime_checkable
class LastRecords(Protocol):
    """Without it the run is read once more after its end."""

    def last_record(self, run_id: str) -> RunSnapshot | None:
        """As the update of this process that ended the run left it: what ``get_run`` would have
        said at that instant. ``None`` if the store no longer has it at hand or never had. It is
        given away: who asks again gets ``None``."""
        ...
