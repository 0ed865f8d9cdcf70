"""Two signals end a process whose work does not end, and it says so once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytestmark = pytest.mark.slow

PATIENCE = 20.0
STUBBORN = """
import asyncio, sys, threading
from tenure.cli.signals import LastWords, Stopped, stoppable

async def ask(_):
    print("asked", flush=True)
    return True

async def work():
    print("works", flush=True)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            {when_cancelled}

def stopped():
    print("stopped", flush=True)
    return 7

last_words = LastWords(stopped)
try:
    asyncio.run(stoppable(work(), ask, last_words))
except Stopped:
    code = last_words()
    {after}
    sys.exit(code)
"""
DEAF = STUBBORN.format(when_cancelled="pass", after="pass")
HELD_UP = STUBBORN.format(when_cancelled="raise", after="threading.Event().wait()")
"""By what the interpreter waits for in the end: a thread of a driver, say."""
IN_TIME = STUBBORN.format(when_cancelled="raise", after="pass")
COMES_TO_AN_END = STUBBORN.format(
    when_cancelled="return print('ended', flush=True)", after="pass"
).replace("last_words))", "last_words)); threading.Event().wait(3); print('took its time')")


@contextmanager
def begun(program: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "works\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def signalled_twice(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    assert process.stdout is not None
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "asked\n"
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, said.splitlines()


@pytest.mark.parametrize("program", [DEAF, HELD_UP, IN_TIME], ids=["deaf", "held up", "in time"])
def test_it_ends_and_says_so_once(program: str) -> None:
    with begun(program) as process:
        assert signalled_twice(process) == (7, ["stopped"])


def test_work_that_ended_by_itself_leaves_time_for_what_follows() -> None:
    with begun(COMES_TO_AN_END) as process:
        assert signalled_twice(process) == (0, ["ended", "took its time"])
