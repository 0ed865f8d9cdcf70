"""What a caller may say about one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from tenure.model.errors import InvalidOptions
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import Recovery
from tenure.ports.callbacks import RunStateNotifier
from tenure.ports.store import RunStateStore
from tenure.runtime.option_rules import problems_of
from tenure.workflow.spec import CallbackSpec


class RunOptions(Struct, frozen=True, kw_only=True):
    """What is particular to one run. What is left out, the workflow or the runner says.

    ``InvalidOptions`` names everything that is not of its type, before anything is executed.
    """

    run_id: str | None = None
    store: RunStateStore | None = None
    notifier: RunStateNotifier | None = None
    vars: Mapping[str, Any] = {}
    secrets: Mapping[str, str] = {}
    """Variables that are kept nowhere."""
    labels: Mapping[str, str] = {}
    callbacks: Sequence[CallbackSpec | CallbackTarget] = ()
    """Besides those of the workflow."""
    queue: str | None = None
    priority: int | None = None
    run_after: datetime | None = None
    recovery: Recovery | None = None
    timeout: float | None = None
    """Seconds for the whole run; zero: as long as it takes."""
    limit: Sequence[str] = ()
    """Hosts and groups to touch; none: all."""
    local: bool = False
    """Every host is this machine: for trying things."""
    retry_of: str | None = None
    approved_by: str | None = None
    requested_by: str | None = None
    """Who wants it, for the journal."""
    files: Mapping[str, bytes] | None = None
    """Those its actions need, by the names their arguments give them; ``None``: they are read from
    the folder of the workflow."""

    def __post_init__(self) -> None:
        by_name: object = self.recovery
        if type(by_name) is str and by_name in frozenset(Recovery):
            force_setattr(self, "recovery", Recovery(by_name))
        wrong = problems_of(self)
        if wrong:
            raise InvalidOptions(wrong)
