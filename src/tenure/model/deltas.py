"""What an update does to a run, as differences, and what of the run must be known to find out.

Whoever keeps whole records gives and gets snapshots (``apply``). Whoever keeps rows answers for
steps and hosts one by one and writes what differs; nobody builds a run to throw it away.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import TERMINAL_RUN
from tenure.model.update import Effect


class Steps(Protocol):
    """A run's steps, as far as decisions ask for them."""

    def step(self, index: int) -> StepState | None:
        """Its own fields; what ``hosts`` holds does not matter."""

    def host(self, index: int, name: str) -> HostState | None:
        """With its items. ``None`` if this step, which has not ended, does not have it."""

    def open_hosts(self, index: int) -> dict[str, HostState]:
        """Those running or unknown."""

    def unfinished(self) -> Iterable[StepState]:
        """Those that the end of the run concerns: they run, or have open hosts."""


def concerns_steps(effect: Effect) -> bool:
    """Or neither names steps nor ends the run."""
    return bool(effect.changes.steps) or effect.changes.run.status in TERMINAL_RUN


class StepDelta(Struct, gc=False):
    before: StepState | None
    """``None`` for a step that is added; its planned hosts are then those of ``after``."""
    after: StepState
    """Its own fields. The same value as ``before`` if only hosts changed."""
    hosts: dict[str, HostState]
    """Those that changed, as they read now."""


class Decision(Struct, frozen=True, gc=False):
    """What has not started when its step or run ends is not mentioned: how it reads then follows
    from the end (``closing``), whoever asks and whenever."""

    version: int
    """What the writer is told; for a repetition the version of the first time."""
    effect: Effect | None = None
    """What to journal and to deliver; ``None`` when nothing is to be written."""
    at: datetime | None = None
    fields: dict[str, Any] = {}
    """The run's own that change, but for version and ``updated_at``."""
    steps: dict[int, StepDelta] = {}

    def own_fields(self, run: RunSnapshot) -> RunSnapshot:
        """The run after it, but for its steps."""
        return replace(run, version=self.version, updated_at=self.at, **self.fields)
