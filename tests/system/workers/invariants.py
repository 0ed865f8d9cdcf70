"""What must be true of every history, whatever was killed, frozen or restarted in it.

Pure: the witness of the tasks, the records and the journals go in, and what is wrong with them
comes out. The names are those of the invariants in the architecture's list.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise

from msgspec import Struct

import tenure
from tenure.model.status import TERMINAL_RUN
from tenure.model.update import RecordedEvent
from tests.system.workers.witness import Line

ENDS = frozenset(f"run.{status}" for status in TERMINAL_RUN)


class History(Struct, frozen=True, kw_only=True):
    lines: Sequence[Line] = ()
    """Of the witness, in order."""
    runs: Mapping[str, tenure.RunSnapshot | None] = {}
    """All that were accepted; ``None``: the store does not know it."""
    journals: Mapping[str, Sequence[RecordedEvent]] = {}
    lost: Mapping[str, datetime] = {}
    """Owners that were killed or frozen, by name, and when: from then on they renewed nothing."""
    left: Iterable[int] = ()
    """Processes of these runs that are still there."""


def broken(history: History) -> list[str]:
    """Every rule that does not hold, and where."""
    return [
        *_no_loss(history),
        *_one_end(history),
        *_no_rerun(history),
        *_no_overlap(history),
        *_fenced(history),
        *_no_false_death(history),
        *(f"I9: process {pid} is left" for pid in history.left),
    ]


def _no_loss(history: History) -> Iterator[str]:
    for run_id, run in history.runs.items():
        if run is None:
            yield f"I1: {run_id} is gone"
        elif not run.ended:
            yield f"I1: {run_id} is still {run.status}"


def _one_end(history: History) -> Iterator[str]:
    for run_id, run in history.runs.items():
        events = history.journals.get(run_id, ())
        ends = [event for event in events if event.type in ENDS]
        if len(ends) > 1 or (run is not None and run.ended and not ends):
            yield f"I2: {run_id} ended {len(ends)} times"
        elif ends and run is not None and ends[0].status != run.status:
            yield f"I2: {run_id} ended as {ends[0].status} and is {run.status}"
        after = [event.type for event in events if ends and event.version > ends[0].version]
        if any(kind.startswith(("run.", "step.", "host.", "lease.")) for kind in after):
            yield f"I2: {run_id} went on after its end: {after}"


def _no_rerun(history: History) -> Iterator[str]:
    """The execution that the journal calls a success is the last one of its task; and an owner
    executes each attempt once."""
    starting = [line for line in history.lines if line.what == "start"]
    for execution, count in Counter(line.execution for line in starting).items():
        if count > 1:
            yield f"I3: {execution} was started {count} times"
    started = defaultdict(list)
    for line in starting:
        started[line.run_id, line.place.partition(".")[0], line.host].append(line)
    for event in _events(history):
        if event.type != "host.success":
            continue
        starts = started[event.run_id, str(event.step_index), event.host or ""]
        own = [n for n, line in enumerate(starts) if line.fence == event.fence]
        own = own or [n for n, line in enumerate(starts) if line.fence < event.fence]
        if own and own[-1] != len(starts) - 1:
            yield f"I3: {starts[-1].task} was started again after its success"


def _no_overlap(history: History) -> Iterator[str]:
    """By what each found when it started, and by the order of starts and ends."""
    running: dict[tuple[str, str, str], Line] = {}
    for line in history.lines:
        before = running.get(line.task)
        if line.what == "end":
            if before is None or before.execution != line.execution:
                yield f"I4: {line.task} ended under fence {line.fence} beside another"
            else:
                del running[line.task]
            continue
        if not line.alone:
            yield f"I4: {line.task} was started under fence {line.fence} beside another"
        running[line.task] = line  # one before it that said no end was killed


def _fenced(history: History) -> Iterator[str]:
    for run_id, events in history.journals.items():
        versions = sorted({event.version for event in events})
        if versions != list(range(1, len(versions) + 1)):
            yield f"I5: the versions of {run_id} have gaps: {versions}"
        if any(later.position <= event.position for event, later in pairwise(events)):
            yield f"I5: the journal of {run_id} is not in order"
        for event, later in pairwise(events):
            if later.fence < event.fence:
                yield f"I5: {run_id} went from fence {event.fence} back to {later.fence}"
            claimed = later.type in ("lease.claimed", "lease.taken_over")
            if claimed and later.fence == event.fence:
                yield f"I5: {run_id} was claimed twice under fence {later.fence}"
    newest: dict[str, int] = {}
    for line in history.lines:
        if line.fence < newest.get(line.run_id, 0):
            yield f"I5: {line.task} said {line.what} under fence {line.fence}, which was over"
        if line.what == "start":
            newest[line.run_id] = max(line.fence, newest.get(line.run_id, 0))


def _no_false_death(history: History) -> Iterator[str]:
    for event in _events(history):
        if event.type != "lease.taken_over":
            continue
        owner = owner_name((event.data or {}).get("from"))
        lost_at = history.lost.get(owner)
        if lost_at is None or event.at < lost_at:
            yield f"I8: {event.run_id} was taken from {owner}, which was there"


def owner_name(owner_id: object) -> str:
    """What a worker was called when it was started."""
    return str(owner_id).rpartition("@")[2]


def _events(history: History) -> Iterator[RecordedEvent]:
    return (event for events in history.journals.values() for event in events)
