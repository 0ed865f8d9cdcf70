"""How the end of a process becomes a result."""

from __future__ import annotations

import signal

import pytest

from tenure.actions.commands import CUT, PassingOutput, PrintedExports, judge
from tenure.model.status import HostStatus
from tenure.ports.execution import Exit
from tenure.runtime.masking import Masks
from tests.transports.keeping import Kept


def test_exit_zero_is_success_and_nobody_knows_what_changed() -> None:
    result = judge(Exit(code=0), "a warning")
    assert (result.status, result.exit_code, result.changed) == (HostStatus.SUCCESS, 0, None)
    assert (result.message, result.kind, result.vars) == (None, None, {})


@pytest.mark.parametrize(
    ("end", "line", "kind", "message"),
    [
        (Exit(code=3), "no such table", "exit", "exit 3: no such table"),
        (Exit(code=3), "", "exit", "exit 3"),
        (Exit(code=137, signal=9), "", "signal", "ended by SIGKILL"),
        (Exit(code=137), "", "exit", "exit 137"),
        (Exit(code=163, signal=35), "x", "signal", "ended by signal 35: x"),
    ],
)
def test_anything_else_is_a_failure_that_says_why(
    end: Exit, line: str, kind: str, message: str
) -> None:
    result = judge(end, line)
    assert (result.status, result.kind, result.message) == (HostStatus.FAILED, kind, message)
    assert result.exit_code == end.code


def test_every_named_signal_has_its_name() -> None:
    for number in (signal.SIGTERM, signal.SIGSEGV, signal.SIGXCPU):
        assert number.name in (judge(Exit(code=128 + number, signal=number), "").message or "")


def test_the_file_wins_over_what_was_printed() -> None:
    printed = PrintedExports()
    printed.feed(b"TENURE_EXPORT:A=printed\nTENURE_EXPORT:B=printed\n")
    result = judge(Exit(code=0, exported=b"A=written\n"), "", printed)
    assert result.vars == {"A": "written", "B": "printed"}


def test_exports_of_a_failure_are_dropped() -> None:
    assert judge(Exit(code=1, exported=b"A=1\n"), "").vars == {}


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (Exit(code=0, exported=b"A"), "$TENURE_OUTPUT, line 1: nothing is given to A"),
        (Exit(code=0, exported=b"A=1\n", exported_cut=True), "more than 4 bytes were written"),
    ],
)
def test_exports_that_cannot_be_read_fail_the_task(end: Exit, message: str) -> None:
    result = judge(end, "")
    assert (result.status, result.kind, result.exit_code) == (HostStatus.FAILED, "exports", 0)
    assert message in (result.message or "")


# -- output on its way ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunks", "line"),
    [
        ([b"first\nlast\n"], "last"),
        ([b"split ov", b"er chunks\n"], "split over chunks"),
        ([b"kept\n", b" \n\t\n"], "kept"),
        ([b"\x1b[31mred\x1b[0m\r\n"], "[31mred [0m"),
        ([b"bad \xff\0 bytes"], "bad \ufffd  bytes"),
        ([b"x" * 10_000], "x" * 300 + "…"),
        ([b"noise\n" * 5000, b"end"], "end"),
        ([], ""),
    ],
)
async def test_the_last_line_of_stderr_is_remembered(chunks: list[bytes], line: str) -> None:
    passing = PassingOutput(Kept())
    await passing.write("stdout", b"not this\n")
    for chunk in chunks:
        await passing.write("stderr", chunk)
    assert passing.last_error_line() == line


async def test_output_passes_unchanged() -> None:
    kept = Kept()
    passing = PassingOutput(kept, exports=PrintedExports())
    await passing.write("stdout", b"TENURE_EXPORT:A=1\n")
    await passing.write("stderr", b"\xff\0")
    assert kept.chunks == [("stdout", b"TENURE_EXPORT:A=1\n"), ("stderr", b"\xff\0")]


async def test_a_limit_cuts_each_stream_and_marks_the_cut_once() -> None:
    kept = Kept()
    passing = PassingOutput(kept, limit=5)
    for stream in ("stdout", "stderr"):
        for _ in range(4):
            await passing.write(stream, b"abc")
    assert kept.stdout == kept.stderr == b"abcab" + CUT


async def test_output_within_the_limit_is_not_marked() -> None:
    kept = Kept()
    passing = PassingOutput(kept, limit=6)
    await passing.write("stdout", b"abc")
    await passing.write("stdout", b"def")
    assert kept.stdout == b"abcdef"
    await passing.write("stdout", b"g")
    assert kept.stdout == b"abcdef" + CUT


async def test_exports_and_the_last_line_survive_the_limit() -> None:
    exports = PrintedExports()
    passing = PassingOutput(Kept(), exports=exports, limit=1)
    await passing.write("stdout", b"noise\nTENURE_EXPORT:A=1\n")
    await passing.write("stderr", b"noise\nthe reason\n")
    assert exports.finish() == {"A": "1"}
    assert passing.last_error_line() == "the reason"


# -- secrets, masked before anything is cut -------------------------------------------------------

SECRET = "us3rn4me\tp4ssw0rd"


@pytest.mark.parametrize("limit", range(1, 40))
@pytest.mark.parametrize("at_once", [1, 7, 100])
async def test_a_limit_cuts_no_secret_in_two(limit: int, at_once: int) -> None:
    kept = Kept()
    passing = PassingOutput(kept, limit=limit, masks=Masks([SECRET]))
    printed = f"12345{SECRET}67890".encode()
    for start in range(0, len(printed), at_once):
        for stream in ("stdout", "stderr"):
            await passing.write(stream, printed[start : start + at_once])
    await passing.finish()
    assert kept.stdout == kept.stderr == b"12345***67890"[:limit] + (CUT if limit < 13 else b"")


@pytest.mark.parametrize("after", [4096 - len(SECRET) + each for each in range(len(SECRET) + 2)])
async def test_the_last_line_begins_with_no_end_of_a_secret(after: int) -> None:
    passing = PassingOutput(Kept(), masks=Masks([SECRET]))
    await passing.write("stderr", SECRET.encode() + b"x" * after)
    await passing.finish()
    assert set(passing.last_error_line()) <= set("*x…")


async def test_what_only_began_like_a_secret_is_said_in_the_end() -> None:
    kept = Kept()
    passing = PassingOutput(kept, limit=100, masks=Masks([SECRET]))
    await passing.write("stderr", b"denied: us3")
    await passing.finish()
    assert passing.last_error_line() == "denied: us3"
    assert kept.stderr == b"denied: us3"
