"""What the views of a running run show, from its events and its output alone. They are called
directly: the order in which a process hands over events and output is its own."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.cli.display.lines import LineCutter, PlainView, Printer, lines_as_kept, lines_as_seen
from tenure.cli.display.live import OutputTail, Progress, picture
from tenure.cli.display.text import cells, neutral
from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.update import RecordedEvent
from tenure.ports.execution import OutputChunk
from tenure.testing.clock import ManualClock

START = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def planned(*steps: tuple[str, int]) -> RunSnapshot:
    return RunSnapshot(
        run_id="run-00001",
        workflow_name="deploy",
        steps=tuple(
            StepState(
                index=index,
                name=name,
                hosts={f"web{number}": HostState() for number in range(hosts)},
            )
            for index, (name, hosts) in enumerate(steps)
        ),
    )


def event(
    type: str,
    *,
    step: str | None = None,
    index: int | None = None,
    host: str | None = None,
    message: str | None = None,
    after: float = 0,
) -> RecordedEvent:
    kind, _, what = type.partition(".")
    return RecordedEvent(
        type=type,
        status=what if kind in ("run", "step", "host") else None,
        step=step,
        step_index=index,
        host=host,
        message=message,
        run_id="run-00001",
        version=1,
        seq=0,
        at=START + timedelta(seconds=after),
        fence=1,
    )


def chunk(
    data: bytes, host: str = "web1", stream: str = "stdout", *, step: str = "drain", index: int = 0
) -> OutputChunk:
    return OutputChunk(
        run_id="run-00001", step_index=index, step=step, host=host, stream=stream, data=data
    )


STARTED = [event("run.running"), event("step.running", step="drain", index=0)]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("tab\tand\nline", "tab\tand\nline"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hgone", "gone"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred", "�31mred"),
        ("bell\x07back\x08", "bell�back�"),
        ("rtl \u202egnp.exe", "rtl �gnp.exe"),
        ("lone \ud800 surrogate", "lone � surrogate"),
    ],
)
def test_nothing_that_steers_a_terminal_is_left(text: str, shown: str) -> None:
    assert neutral(text) == shown


@given(st.text(alphabet=st.characters(), max_size=60))
def test_neutral_text_stays_neutral(text: str) -> None:
    once = neutral(text)
    assert neutral(once) == once
    assert not set(once) & {chr(n) for n in (*range(9), *range(11, 32), *range(127, 160))}


class Shown:
    """What a cutter hands on, line by line."""

    def __init__(self, longest: int = 1000) -> None:
        self.lines: list[tuple[str, bytes]] = []
        self.cutter: LineCutter[str] = LineCutter(self.take, longest)

    def take(self, key: str, lines: bytes) -> None:
        self.lines += [(key, line) for line in lines.split(b"\n")]


@given(st.lists(st.binary(max_size=8).map(lambda data: data.replace(b"\x00", b"\n"))))
def test_however_output_is_cut_into_pieces_its_lines_are_the_same(pieces: list[bytes]) -> None:
    shown = Shown()
    for piece in pieces:
        shown.cutter.add("a", piece)
    shown.cutter.end()
    whole = b"".join(pieces)
    expected = whole.removesuffix(b"\n").split(b"\n") if whole else []
    assert [line for _, line in shown.lines] == expected


def test_a_line_without_end_does_not_wait_for_ever() -> None:
    shown = Shown(longest=10)
    for _ in range(5):
        shown.cutter.add("a", b"12345")
    assert [line for _, line in shown.lines] == [b"1234512345" + b"12345"]
    shown.cutter.add("a", b"\n" + b"x" * 11)
    assert [line for _, line in shown.lines][1:] == [b"1234512345", b"x" * 11]


@pytest.mark.parametrize(
    ("printed", "seen", "kept"),
    [
        (b"10%\r20%\r30%", "30%", "10%�20%�30%"),
        (b"a\r\nb\r\r\nc", "a\nb\nc", "a\nb�\nc"),
        (b"50%\r\x1b[K", "", "50%�"),
        (b"a\tb\nab\tc", "a       b\nab      c", "a\tb\nab\tc"),
        (b"\x1b[31mred\x1b[0m\nno\x07ise", "red\nno�ise", "red\nno�ise"),
        (b"\xff\xfe", "��", "��"),
    ],
)
def test_lines_as_a_terminal_would_leave_them_and_as_they_were(
    printed: bytes, seen: str, kept: str
) -> None:
    assert lines_as_seen(printed) == seen
    assert lines_as_kept(printed) == kept


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


@pytest.mark.parametrize("height", [5, 8, 13, 24, 39])
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


# -- output ---------------------------------------------------------------------------------------


def test_the_tail_stays_small_whatever_is_printed() -> None:
    tail = OutputTail(5)
    for _ in range(50):
        tail.add(chunk(b"x" * 1_000_000))
        tail.add(chunk(b"line\n" * 100_000, host="db"))
    assert len(tail.lines()) == 5
    assert max(cells(text) for _, text in tail.lines()) < 5_000


# -- differences, for stores without a journal ----------------------------------------------------


MEGABYTE = b"x" * 1_000_000

Told = list[RecordedEvent | OutputChunk]


async def plain_lines(*told: RecordedEvent | OutputChunk) -> list[str]:
    stream = io.StringIO()
    printer = Printer(stream)
    view = PlainView(printer, ManualClock(START), "store x.db")
    view.begin(planned(("drain", 3), ("restart", 1)))
    for each in told:
        if isinstance(each, OutputChunk):
            view.output(each)
        else:
            await view.record(each)
    view.end()
    printer.close()
    first, *rest = stream.getvalue().splitlines()
    assert first.partition("  ")[2] == "run run-00001 of deploy, store x.db"
    return [line.partition("  ")[2] for line in rest]


async def test_a_line_without_end_is_shown_before_its_host_is_said_to_have_ended() -> None:
    ended = event("host.success", step="drain", index=0, host="web1")
    said = [chunk(b"done"), chunk(b"other", host="web0"), chunk(b"oops", stream="stderr")]
    assert await plain_lines(*said, ended) == [
        "drain    web1  | done",
        "drain    web1  | oops",
        "drain    web1  success",
        "drain    web0  | other",
    ]


# -- output of a step that is not said to run yet -------------------------------------------------

DRAINED = event("step.success", step="drain", index=0)
RESTARTING = event("step.running", step="restart", index=1)


def of_restart(data: bytes) -> OutputChunk:
    return chunk(data, "web0", step="restart", index=1)


async def test_output_that_is_faster_than_the_word_that_its_step_runs_comes_after_it() -> None:
    at_once = event("host.running", step="restart", index=1, host="web0")
    said: Told = [
        of_restart(b"Traceback\n"),
        DRAINED,
        at_once,
        RESTARTING,
        of_restart(b"at once\n"),
    ]
    assert await plain_lines(*STARTED, *said) == [
        "run running",
        "drain          running",
        "drain          success",
        "restart        running",
        "restart  web0  | Traceback",
        "restart  web0  | at once",
    ]


# -- the printer ----------------------------------------------------------------------------------


class Stuck(io.StringIO):
    """A reader that pauses: a pager, a stopped terminal."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def write(self, text: str) -> int:
        self.reached.set()
        self.go_on.wait()
        return super().write(text)


def test_a_reader_that_pauses_holds_up_nobody_and_misses_no_event() -> None:
    stream = Stuck()
    printer = Printer(stream)
    for _ in range(50):
        printer.output("", MEGABYTE)
    printer.line("event")
    stream.go_on.set()
    printer.close()
    *output, dropped, event = stream.getvalue().splitlines()
    assert event == "event"
    assert dropped == f"… {50 - len(output)} lines of output are not shown here"
    assert 5 < len(output) < 20
