"""What the views of a running run show, from its events alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import click
import pytest

from tenure.cli.display.live import OutputTail, Progress, picture, window
from tenure.cli.display.report import in_the_end, so_far
from tenure.cli.display.text import cells
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import HostStatus, StepKind, StepStatus
from tenure.model.update import RecordedEvent
from tests.cli.told import START, STARTED, chunk, event, planned


def progress_of(plan: RunSnapshot, events: Sequence[RecordedEvent]) -> Progress:
    progress = Progress()
    progress.begin(plan)
    for each in events:
        progress.take(each)
    return progress


def drawn(progress: Progress, *, height: int = 24, notice: str | None = None) -> list[str]:
    now = START + timedelta(seconds=10)
    lines = picture(progress, OutputTail(3), "store x.db", notice, now, (80, height))
    return [click.unstyle(line) for line in lines]


# -- counting -------------------------------------------------------------------------------------


def test_a_step_counts_its_hosts_as_they_move() -> None:
    hosts = [event("host.running", step="drain", index=0, host=f"web{n}") for n in range(3)]
    ends = [
        event("host.success", step="drain", index=0, host="web0"),
        event("host.failed", step="drain", index=0, host="web1"),
    ]
    step = progress_of(planned(("drain", 5)), [*STARTED, *hosts, *ends]).steps[0]
    assert step.status is StepStatus.RUNNING
    assert (step.total, step.ended) == (5, 2)
    assert +step.counts == {
        HostStatus.RUNNING: 1,
        HostStatus.SUCCESS: 1,
        HostStatus.FAILED: 1,
    }


def test_a_host_that_runs_again_is_counted_once() -> None:
    moves = ("host.running", "host.unknown", "host.running", "host.success")
    step = progress_of(
        planned(("drain", 1)), [event(move, step="drain", index=0, host="web0") for move in moves]
    ).steps[0]
    assert +step.counts == {HostStatus.SUCCESS: 1}


def test_a_step_nobody_planned_is_a_handler() -> None:
    found = progress_of(
        planned(("drain", 1)),
        [
            event("step.running", step="reload", index=1),
            event("host.running", step="reload", index=1, host="web0"),
        ],
    ).steps[1]
    assert (found.name, found.kind, found.total) == ("reload", StepKind.HANDLER, 1)


def test_a_handler_stands_below_the_step_it_ran_for() -> None:
    plan = planned(("drain", 1), ("verify", 1))
    joined = event("step.running", step="reload", index=2)
    lines = drawn(progress_of(plan, [*STARTED, joined]))[3:]
    assert [line.split()[1:3] for line in lines] == [
        ["drain", "0/1"],
        ["↳", "reload"],
        ["verify", "1"],
    ]
    beside = event("step.running", step="verify", index=1)
    lines = drawn(progress_of(plan, [*STARTED, beside, joined]))[3:]
    assert "reload" in lines[-1], "one of two: nobody knows which"


@pytest.mark.parametrize(
    ("counts", "total", "running", "ended"),
    [
        ({HostStatus.RUNNING: 2}, 2, "0/2 · 2 running", ""),
        ({HostStatus.SUCCESS: 1_200}, 5_000, "1,200/5,000", "1,200 ok"),
        (
            {HostStatus.SUCCESS: 1, HostStatus.FAILED: 2, HostStatus.UNREACHABLE: 3},
            9,
            "6/9 · 2 failed · 3 unreachable",
            "1 ok · 2 failed · 3 unreachable",
        ),
        ({HostStatus.SKIPPED: 4, HostStatus.SUCCESS: 0}, 4, "4/4", "4 skipped"),
    ],
)
def test_counts_in_words(
    counts: dict[HostStatus, int], total: int, running: str, ended: str
) -> None:
    assert " · ".join(piece.text for piece in so_far(counts, total)) == running
    assert " · ".join(piece.text for piece in in_the_end(counts)) == ended


# -- the live picture -----------------------------------------------------------------------------


def test_the_picture_of_a_running_run() -> None:
    events = [
        *STARTED,
        event("host.running", step="drain", index=0, host="web0"),
        event("host.success", step="drain", index=0, host="web0", after=1),
        event("step.success", step="drain", index=0, after=2),
        event("step.running", step="restart", index=1, after=2),
        event("host.running", step="restart", index=1, host="web0", after=2),
    ]
    plan = planned(("drain", 1), ("restart", 2), ("verify", 3))
    assert drawn(progress_of(plan, events)) == [
        "● running  deploy  10.0s",
        "  run-00001  store x.db",
        "",
        "  ✓ drain      1 ok                              2.0s",
        "  ● restart    0/2 · 1 running                   8.0s",
        "  · verify     3 hosts",
    ]


def test_five_thousand_hosts_are_one_line() -> None:
    hosts = [event("host.running", step="drain", index=0, host=f"web{n}") for n in range(5_000)]
    lines = drawn(progress_of(planned(("drain", 5_000)), [*STARTED, *hosts]))
    assert len(lines) == 4
    assert "0/5,000 · 5,000 running" in lines[3]


def test_output_is_shown_below_unless_the_terminal_is_low() -> None:
    progress = progress_of(planned(("drain", 2)), STARTED)
    tail = OutputTail(3)
    tail.add(chunk(b"one\ntwo\nthree\nfour\nfi"))
    tail.add(chunk(b"\x1b[31mother\x1b[0m\n", host="db"))
    lines = [click.unstyle(each) for each in picture(progress, tail, "s", None, START, (80, 24))]
    assert lines[-3:] == ["  web1 │ three", "  web1 │ four", "  db   │ other"]
    assert not any("│" in each for each in picture(progress, tail, "s", None, START, (80, 8)))


@pytest.mark.parametrize("height", range(5, 40))
def test_the_picture_fits_whatever_the_height(height: int) -> None:
    plan = planned(*((f"step-{n}", 3) for n in range(60)))
    events = [
        *STARTED,
        *(event("step.success", step=f"step-{n}", index=n) for n in range(30)),
        event("step.running", step="step-30", index=30),
    ]
    lines = drawn(progress_of(plan, events), height=height, notice="canceling")
    assert len(lines) <= max(height, 8)
    assert any("step-30" in line for line in lines)


def test_a_cancel_is_announced_until_the_run_has_ended() -> None:
    asked = [*STARTED, event("cancel.requested", message="wrong release")]
    plan = planned(("drain", 1))
    assert drawn(progress_of(plan, asked))[-1] == "  canceling: wrong release"
    assert drawn(progress_of(plan, asked), notice="again?")[-1] == "  again?"
    ended = [*asked, event("run.canceled", message="wrong release", after=3)]
    assert "canceling" not in "\n".join(drawn(progress_of(plan, ended)))


def test_a_skipped_step_says_why() -> None:
    skipped = event("step.skipped", step="drain", index=0, message="its condition holds nowhere")
    assert drawn(progress_of(planned(("drain", 2)), [skipped]))[-1] == (
        "  – drain    its condition holds nowhere"
    )


P, R, S = StepStatus.PENDING, StepStatus.RUNNING, StepStatus.SUCCESS


@pytest.mark.parametrize(
    ("statuses", "room", "shown"),
    [
        ([P] * 3, 3, (0, 3)),
        ([P] * 10, 5, (0, 3)),
        ([S] * 5 + [R] + [P] * 4, 5, (4, 7)),
        ([S] * 10, 5, (7, 10)),
        ([S] * 9 + [R], 5, (7, 10)),
        ([P] * 10, 1, (0, 1)),
        ([], 3, (0, 0)),
    ],
)
def test_which_steps_are_shown_when_there_is_room_for_few(
    statuses: list[StepStatus], room: int, shown: tuple[int, int]
) -> None:
    assert window(statuses, room) == shown


# -- output ---------------------------------------------------------------------------------------


def test_the_tail_joins_what_came_in_pieces() -> None:
    tail = OutputTail(4)
    tail.add(chunk("häl".encode()[:2]))
    tail.add(chunk("häl".encode()[2:] + b"f"))
    tail.add(chunk(b"te\n10%\r20%"))
    assert tail.lines() == [("web1", "hälfte"), ("web1", "20%")]


def test_the_tail_keeps_streams_apart_and_skips_empty_lines() -> None:
    tail = OutputTail(9)
    tail.add(chunk(b"out", stream="stdout"))
    tail.add(chunk(b"\n\nerr\n", stream="stderr"))
    assert tail.lines() == [("web1", "err")]
    tail.add(chunk(b"put\n", stream="stdout"))
    assert tail.lines() == [("web1", "err"), ("web1", "output")]


def test_the_tail_stays_small_whatever_is_printed() -> None:
    tail = OutputTail(5)
    for _ in range(50):
        tail.add(chunk(b"x" * 1_000_000))
        tail.add(chunk(b"line\n" * 100_000, host="db"))
    assert len(tail.lines()) == 5
    assert max(cells(text) for _, text in tail.lines()) < 5_000
