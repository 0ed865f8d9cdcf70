"""The checker of histories: a good one is good, and each rule turns red on a history that breaks
it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

import tenure
from tenure.model.status import RunStatus
from tenure.model.update import RecordedEvent
from tests.system.workers.invariants import History, broken
from tests.system.workers.witness import Line, parsed

RUN = "run-00001"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def at(second: int) -> datetime:
    return BEGAN + timedelta(seconds=second)


def event(version: int, fence: int, kind: str, **rest: Any) -> RecordedEvent:
    status = kind.partition(".")[2] if kind.startswith(("run.", "host.")) else None
    return RecordedEvent(
        type=kind,
        status=status,
        run_id=RUN,
        version=version,
        seq=rest.pop("seq", 0),
        at=at(version),
        fence=fence,
        **rest,
    )


def line(what: str, fence: int, host: str = "a", alone: str = "alone", attempt: int = 1) -> Line:
    return parsed(f"{what} {RUN}:0:{host}:{attempt} {fence} 4711 12.34 {alone}")


OF_A = {"step_index": 0, "host": "a"}
OF_B = {"step_index": 0, "host": "b"}
TAKEN = event(5, 2, "lease.taken_over", data={"from": "machine/boot/1/2/3/abcd@first"})
JOURNAL = [
    event(1, 0, "run.queued"),
    event(2, 1, "lease.claimed"),
    event(3, 1, "run.running"),
    event(3, 1, "host.running", seq=1, **OF_A),
    event(3, 1, "host.running", seq=2, **OF_B),
    event(4, 1, "host.success", **OF_A),
    TAKEN,
    event(6, 2, "host.running", **OF_B),
    event(7, 2, "host.success", **OF_B),
    event(7, 2, "run.success", seq=1),
]
LINES = [
    line("start", 1),
    line("start", 1, "b"),
    line("end", 1),
    line("start", 2, "b", attempt=2),
    line("end", 2, "b", attempt=2),
]
ENDED = tenure.RunSnapshot(run_id=RUN, workflow_name="storm", status=RunStatus.SUCCESS)
GOOD = History(lines=LINES, runs={RUN: ENDED}, journals={RUN: JOURNAL}, lost={"first": at(4)})


def with_journal(events: Sequence[RecordedEvent]) -> History:
    return replace(GOOD, journals={RUN: events})


def test_a_history_with_one_lost_worker_is_good() -> None:
    assert broken(GOOD) == []


BAD = {
    "I1: a run that the store forgot": replace(GOOD, runs={RUN: None}, journals={}),
    "I1: a run that never ended": replace(
        with_journal(JOURNAL[:-1]), runs={RUN: replace(ENDED, status=RunStatus.RUNNING)}
    ),
    "I2: two ends": with_journal([*JOURNAL, event(8, 2, "run.failed")]),
    "I2: no word of the end": with_journal(JOURNAL[:-1]),
    "I2: another end than the record's": replace(
        GOOD, runs={RUN: replace(ENDED, status=RunStatus.FAILED)}
    ),
    "I2: a host that goes on after the end": with_journal(
        [*JOURNAL, event(8, 2, "host.running", **OF_A)]
    ),
    "I3: a finished host that the next owner starts again": replace(
        GOOD, lines=[*LINES, line("start", 2, attempt=2), line("end", 2, attempt=2)]
    ),
    "I3: an owner that starts the same attempt twice": replace(
        GOOD, lines=[LINES[0], line("end", 1), *LINES]
    ),
    "I4: one that finds another at work": replace(
        GOOD, lines=[*LINES[:3], line("start", 2, "b", "beside", 2), *LINES[4:]]
    ),
    "I4: one that ends after its successor began": replace(
        GOOD, lines=[*LINES[:4], line("end", 1, "b"), LINES[4]]
    ),
    "I5: an older fence writes after a newer one": with_journal(
        [*JOURNAL[:7], event(6, 1, "host.success", **OF_B), *JOURNAL[8:]]
    ),
    "I5: a version that nobody saw": with_journal([*JOURNAL[:5], *JOURNAL[6:]]),
    "I5: a journal out of order": with_journal([JOURNAL[1], JOURNAL[0], *JOURNAL[2:]]),
    "I5: two claims under one fence": with_journal(
        [*JOURNAL[:6], replace(TAKEN, fence=1), *JOURNAL[7:]]
    ),
    "I5: a task of an owner that was replaced": replace(
        GOOD, lines=[*LINES[:4], line("start", 1, "c"), LINES[4]]
    ),
    "I8: taken from a worker that nobody harmed": replace(GOOD, lost={}),
    "I8: taken before anything happened to its worker": replace(GOOD, lost={"first": at(6)}),
    "I9: a process that stayed": replace(GOOD, left=[4711]),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_found(name: str) -> None:
    rules = {text.partition(":")[0] for text in broken(BAD[name])}
    assert name.partition(":")[0] in rules
