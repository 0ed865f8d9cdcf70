"""How long this machine keeps a process waiting that wants to work, moment by moment.

What is promised in seconds is promised on a machine that has time for us. On one that has none
nobody can keep it, and a bound wide enough for all of them would promise nothing. So what a process
that only sleeps and works a little by turns was kept waiting meanwhile is not counted.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from bisect import bisect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

_YARDSTICK = """
import sys, time
waited = 0.0
while True:
    begun, worked = time.monotonic(), time.process_time()
    time.sleep(0.01)
    while time.process_time() < worked + 0.001:
        pass
    waited += max(0.0, time.monotonic() - begun - 0.01 - (time.process_time() - worked))
    print(time.time(), waited, flush=True)
"""


class Stalls:
    def __init__(self) -> None:
        self._moments: list[float] = []
        self._waited: list[float] = []

    def between(self, begun: datetime, ended: datetime) -> float:
        """Seconds, of that time."""
        return self._at(ended) - self._at(begun)

    def _at(self, moment: datetime) -> float:
        place = bisect(self._moments, moment.timestamp())
        return self._waited[min(place, len(self._waited) - 1)]

    async def listen(self, yardstick: Process) -> None:
        assert yardstick.stdout is not None
        async for line in yardstick.stdout:
            moment, waited = map(float, line.split())
            self._moments.append(moment)
            self._waited.append(waited)


@asynccontextmanager
async def stalls() -> AsyncIterator[Stalls]:
    yardstick = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-c", _YARDSTICK, stdout=PIPE
    )
    measured = Stalls()
    listening = asyncio.create_task(measured.listen(yardstick))
    try:
        yield measured
    finally:
        yardstick.kill()
        await yardstick.wait()
        await listening
