"""A run as lines of text, and the thread that writes them."""

from __future__ import annotations

import io
import threading

from msgspec.structs import replace

from tenure.cli.display.lines import PlainView, Printer
from tenure.model.status import StepStatus
from tenure.model.update import RecordedEvent
from tenure.ports.execution import OutputChunk
from tenure.testing.clock import ManualClock
from tests.cli.told import START, STARTED, chunk, event, planned

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


async def test_plain_lines_say_step_host_status_and_message() -> None:
    events = [
        *STARTED,
        event("host.running", step="drain", index=0, host="web0"),
        event("host.failed", step="drain", index=0, host="web0", message="exit 1:\n oops"),
        event("step.failed", step="drain", index=0, message="failed on 1 of 3 hosts"),
        event("cancel.requested", message="why not"),
        event("run.failed", message="step 'drain' failed"),
    ]
    assert await plain_lines(*events) == [
        "run running",
        "drain          running",
        "drain    web0  failed      exit 1: oops",
        "drain          failed      failed on 1 of 3 hosts",
        "cancel requested  why not",
        "run failed  step 'drain' failed",
    ]


async def test_plain_lines_carry_output_with_its_host() -> None:
    said = [chunk(b"one\ntw"), chunk(b"o\nthree"), chunk(b"\xff\x1b[2Jx\n", host="web0")]
    assert await plain_lines(*said) == [
        "drain    web1  | one",
        "drain    web1  | two",
        "drain    web0  | �x",
        "drain    web1  | three",
    ]


async def test_times_never_go_back() -> None:
    """What is printed and what is durable come by two ways, each with a time of its own."""
    stream, clock = io.StringIO(), ManualClock(START)
    printer = Printer(stream)
    view = PlainView(printer, clock, "store x.db")
    view.begin(planned(("drain", 1)))
    clock.advance(5)
    view.output(chunk(b"half a line", "web0"))
    await view.record(event("host.success", step="drain", index=0, host="web0"))
    clock.advance(1)
    view.output(chunk(b"late\n", "web0"))
    printer.close()
    times = [line.partition("  ")[0] for line in stream.getvalue().splitlines()]
    assert times == sorted(times)
    assert len(set(times)) == 3, "and yet they go on"


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


async def test_nobody_waits_for_the_output_of_a_later_step() -> None:
    said: Told = [of_restart(b"early\n"), chunk(b"one\n"), RESTARTING, chunk(b"two\n")]
    assert await plain_lines(*STARTED, *said) == [
        "run running",
        "drain          running",
        "drain    web1  | one",
        "restart        running",
        "restart  web0  | early",
        "drain    web1  | two",
    ]


async def test_a_host_that_ended_has_said_all_even_if_nobody_said_that_its_step_runs() -> None:
    ended = event("host.failed", step="restart", index=1, host="web0")
    assert await plain_lines(of_restart(b"half"), ended) == [
        "restart  web0  | half",
        "restart  web0  failed",
    ]


async def test_much_that_is_early_is_shown_in_its_order_and_not_kept() -> None:
    many = [of_restart(b"x" * 1000 + b"\n") for _ in range(1500)]
    shown = await plain_lines(of_restart(b"first\n"), *many, chunk(b"drained\n"), RESTARTING)
    assert shown[0] == "restart  web0  | first"
    assert len(shown) == 1503
    assert shown[-2:] == ["restart        running", "drain    web1  | drained"]


async def test_many_small_pieces_count_for_more_than_their_bytes() -> None:
    shown = await plain_lines(*(of_restart(b"\n") for _ in range(5000)), RESTARTING)
    assert len(shown) == 5001
    assert shown[-1] == "restart        running"


async def test_the_output_of_a_step_that_others_began_is_shown_at_once() -> None:
    stream = io.StringIO()
    printer = Printer(stream)
    view = PlainView(printer, ManualClock(START), "store x.db")
    plan = planned(("drain", 2))
    begun = replace(plan, steps=(replace(plan.steps[0], status=StepStatus.RUNNING),))
    view.begin(begun)
    view.output(chunk(b"going on\n"))
    printer.close()
    assert stream.getvalue().endswith("drain  web1  | going on\n")


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


def test_output_that_is_dropped_is_dropped_in_one_piece() -> None:
    """Half of what waits is written before more is taken; the note stands where it is missing."""
    stream = Stuck()
    printer = Printer(stream)
    for _ in range(20):
        printer.output("", MEGABYTE)
    stream.reached.wait()
    printer.output("", b"a\nb\nc")
    stream.go_on.set()
    while printer.waiting:
        pass
    printer.output("", b"later")
    printer.close()
    lines = stream.getvalue().splitlines()
    assert [line for line in lines if "x" not in line] == [
        "… 6 lines of output are not shown here",
        "later",
    ]


def test_what_was_dropped_last_is_told_too() -> None:
    stream = Stuck()
    printer = Printer(stream)
    for _ in range(30):
        printer.output("", MEGABYTE)
    stream.go_on.set()
    printer.close()
    assert stream.getvalue().splitlines()[-1].endswith("lines of output are not shown here")


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_reader_that_left_is_not_missed() -> None:
    printer = Printer(Gone())
    printer.line("one")
    for _ in range(50):
        printer.output("", MEGABYTE)
    printer.line("two")
    printer.close()
    assert printer.reader_left
