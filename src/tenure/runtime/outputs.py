"""Where the output of each attempt of a run goes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tenure.ports.log_store import LogKey, LogStore
from tenure.runtime.audience import Audience
from tenure.runtime.executor import Assignment
from tenure.runtime.logs import LogWriter
from tenure.runtime.masking import Masks
from tenure.runtime.output import Printed, shown_to
from tenure.runtime.output_files import file_stem
from tenure.runtime.tracker import RunTracker


class Outputs:
    """Logs and onlookers are looked for when there is something to keep or to show.

    Holds nothing of who asks for an output: the objects of a run form no cycle, so that they go
    when it ends and not when the garbage collector comes by.
    """

    def __init__(
        self,
        tracker: RunTracker,
        audience: Audience,
        masks: Masks | None,
        log_store: LogStore | None,
        *,
        summary_bytes: int,
        log_cap: int,
    ) -> None:
        self._tracker = tracker
        self._audience = audience
        self._masks = masks
        self._log_store = log_store
        self._summary_bytes = summary_bytes
        self._log_cap = log_cap

    def printed(self, assignment: Assignment, attempt: int) -> Printed:
        show = None
        if self._audience.wants_output and not assignment.probe:
            show = shown_to(
                self._audience.output,
                assignment.run_id,
                assignment.index,
                assignment.recipe.name,
                assignment.host.name,
            )
        return Printed(
            self._summary_bytes,
            None if assignment.probe else self._log_opener(assignment, attempt),
            show,
            self._masks,
            partial(_stem, assignment, attempt),
        )

    def _log_opener(self, assignment: Assignment, attempt: int) -> Callable[[], LogWriter] | None:
        store = self._log_store
        if store is None:
            return None
        return lambda: LogWriter(
            store,
            assignment.run_id,
            self._tracker.fencing,
            _keys(assignment, attempt),
            self._log_cap,
        )


def _stem(assignment: Assignment, attempt: int) -> str:
    """Of files with a copy of the output: each attempt has its own."""
    parts = [assignment.recipe.name, assignment.run_id, assignment.index, assignment.host.name]
    if assignment.item is not None:
        parts.append(f"item{assignment.item}")
    if attempt > 1:
        parts.append(f"attempt{attempt}")
    return file_stem(*parts)


def _keys(assignment: Assignment, attempt: int) -> Callable[[str], LogKey]:
    return lambda stream: LogKey(
        step=assignment.index,
        host=assignment.host.name,
        stream=stream,
        item=assignment.item,
        attempt=attempt,
    )
