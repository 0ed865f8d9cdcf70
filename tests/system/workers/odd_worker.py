"""A worker with something odd about it: it comes to a standstill at one exact point, its event loop
has no time for it, or it believes to be on another machine.

``python -m tests.system.workers.odd_worker ODDITY`` (as JSON) serves until SIGTERM. It says when
it freezes, and of each write that ends after that how it was answered.
"""

from __future__ import annotations

import asyncio
import platform
import signal
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

import msgspec
from msgspec import Struct

import tenure
from tenure.bootstrap import open_broker
from tests.system.workers.standstill import Broker, Standstill, Store, say


class Oddity(Struct, frozen=True, kw_only=True):
    url: str
    name: str
    lease: float
    renew: float
    poll: float
    concurrency: int = 3
    freeze: str | None = None
    """One of the points of ``standstill``."""
    hung: bool = False
    """It hangs there instead."""
    broker: str | None = None
    blind_to: tuple[str, ...] = ()
    """Of the ways to find runs in a store (``claim_runs``, ``find_waiting``) those by which it
    finds nothing."""
    busy: int = 0
    """From SIGUSR1 on, and until the next, so many callbacks hold up its event loop by turns."""
    elsewhere: bool = False
    """Nobody here can tell from its process number whether it lives."""


# Wrong about its place


def move_elsewhere() -> None:
    platform.node = lambda: "elsewhere"


# Busy


class Busy:
    """Callbacks that compute for a while, again and again: the loop goes round, but slowly."""

    def __init__(self, callbacks: int) -> None:
        self._callbacks = callbacks
        self._on = False

    def toggle(self) -> None:
        self._on = not self._on
        say("busy" if self._on else "idle")
        for _ in range(self._callbacks if self._on else 0):
            self._hold_up()

    def _hold_up(self) -> None:
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            pass
        if self._on:
            asyncio.get_running_loop().call_soon(self._hold_up)


async def serve(odd: Oddity) -> None:
    async with AsyncExitStack() as closing:
        store = await closing.enter_async_context(tenure.open_store(odd.url))
        standstill = Standstill(odd.freeze, store, hung=odd.hung)
        broker: Any = None
        if odd.broker is not None:
            broker = open_broker(odd.broker, visibility_timeout=odd.lease)
            closing.push_async_callback(broker.close)
            broker = Broker(broker, standstill)
        seen = Store(store, standstill)
        for way in odd.blind_to:
            seen.find_nothing_by(way)
        worker = tenure.Worker(
            seen,  # type: ignore[arg-type]
            pace=tenure.Pace(poll_interval=odd.poll, concurrency=odd.concurrency),
            timing=tenure.Timing(
                lease_duration=odd.lease, renew_interval=odd.renew, control_interval=0.2
            ),
            reconcile_interval=0.5,
            max_takeovers=1000,
            worker_id=odd.name,
            broker=broker,
            log_cap=100_000,
        )
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, worker.drain)
        if odd.busy:
            loop.add_signal_handler(signal.SIGUSR1, Busy(odd.busy).toggle)
        await worker.run()


if __name__ == "__main__":
    oddity = msgspec.json.decode(sys.argv[1], type=Oddity)
    if oddity.elsewhere:
        move_elsewhere()
    asyncio.run(serve(oddity))
