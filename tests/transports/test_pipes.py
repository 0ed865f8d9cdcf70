"""Never more than a quarter of a megabyte of a stream in memory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from tenure.transports.streams import BUFFERED, CHUNK, Inflow

pytestmark = pytest.mark.slow


class Arrivals:
    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.ended = False

    def __call__(self, stream: Inflow, data: bytes) -> None:
        assert not self.ended
        self.sizes.append(len(data))
        self.ended = not data


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    yield read_end, write_end
    os.close(write_end)


async def fill(write_end: int) -> int:
    """Write until neither pipe nor reader takes any more."""
    written, refused = 0, 0
    while refused < 5:
        try:
            written += os.write(write_end, b"x" * CHUNK)
            refused = 0
        except BlockingIOError:
            refused += 1
        await asyncio.sleep(0)
    return written


async def test_reading_pauses_until_something_is_taken(pipe: tuple[int, int]) -> None:
    arrivals = Arrivals()
    inflow = Inflow(asyncio.get_running_loop(), "stdout", pipe[0], arrivals)
    inflow.begin()
    await fill(pipe[1])
    held = sum(arrivals.sizes)
    assert BUFFERED <= held <= 256 * 1024
    inflow.taken(held)
    await fill(pipe[1])
    assert sum(arrivals.sizes) > held
    inflow.close()


@pytest.mark.parametrize("later", [b"after", None])
async def test_it_can_be_ended_with_what_is_there(
    pipe: tuple[int, int], later: bytes | None
) -> None:
    arrivals = Arrivals()
    inflow = Inflow(asyncio.get_running_loop(), "stdout", pipe[0], arrivals)
    os.write(pipe[1], b"before")
    inflow.end_with_what_is_there()
    if later is not None:
        os.write(pipe[1], later)
    inflow.begin()
    while not arrivals.ended:
        await asyncio.sleep(0)
    assert arrivals.sizes == [6, 0]
    assert not inflow.open
