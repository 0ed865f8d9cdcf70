"""Holding a supervisor to what is promised, on a machine that others use too.

The promise is in seconds of a machine that has time for us. Nobody can keep it on one that has
none, and a bound wide enough for all of them would promise nothing. So a process that only wants
to sleep and work a little, by turns, measures how long it was kept waiting meanwhile; that, and
nothing else, is not counted.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

TO_END = 2.0
"""Seconds after the grace in which everything has ended."""
AT_LEISURE = 20.0
"""Seconds after which a test fails however busy the machine is."""

_YARDSTICK = """
import select, sys, time
waited = 0.0
while True:
    begun, worked = time.monotonic(), time.process_time()
    asked, _, _ = select.select([sys.stdin], [], [], 0.01)
    slept = 0.0 if asked else 0.01
    while time.process_time() < worked + 0.001:
        pass
    waited += max(0.0, time.monotonic() - begun - slept - (time.process_time() - worked))
    if asked:
        if not sys.stdin.readline():
            break
        print(waited, flush=True)
"""


class Promise:
    def __init__(self, yardstick: Process) -> None:
        self._yardstick = yardstick

    @asynccontextmanager
    async def kept(self, grace: float) -> AsyncIterator[None]:
        """What happens inside takes at most the grace and what is promised on top."""
        loop = asyncio.get_running_loop()
        waited, begun = await self._waited(), loop.time()
        async with asyncio.timeout(grace + AT_LEISURE):
            yield
        took = loop.time() - begun
        served = took - (await self._waited() - waited)
        assert served <= grace + TO_END, f"it took {took:.2f} s, {served:.2f} s of them its own"

    async def _waited(self) -> float:
        assert self._yardstick.stdin is not None
        assert self._yardstick.stdout is not None
        self._yardstick.stdin.write(b"\n")
        return float(await self._yardstick.stdout.readline())


@asynccontextmanager
async def measured() -> AsyncIterator[Promise]:
    yardstick = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-c", _YARDSTICK, stdin=PIPE, stdout=PIPE
    )
    try:
        yield Promise(yardstick)
    finally:
        await yardstick.communicate(b"")
