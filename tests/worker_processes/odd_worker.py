"""A worker with something odd about it: it freezes itself at one exact point, it believes to be on
another machine, or its wall clock is wrong.

``python -m tests.worker_processes.odd_worker ODDITY`` (as JSON) serves until SIGTERM. It says when
it freezes, and of each write that ends after that how it was answered.
"""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime, tzinfo
from typing import Any

import msgspec
from msgspec import Struct

import tenure
import tenure.system
from tenure.model.events import Event
from tenure.testing.faults import METHODS


class Oddity(Struct, frozen=True, kw_only=True):
    url: str
    name: str
    lease: float
    renew: float
    poll: float
    freeze: str | None = None
    elsewhere: bool = False
    """Nobody here can tell from its process number whether it lives."""
    ahead: float = 0.0
    """Seconds that its wall clock is off."""
    speed: float = 1.0


# Freezing


class Point(Struct, frozen=True):
    """The first call of ``method`` for which ``meant`` holds, before it is sent or after it was
    answered (then ``meant`` gets the answer too)."""

    method: str
    before: bool
    meant: Callable[..., bool]


def _tells(kind: str) -> Callable[..., bool]:
    def meant(writes: Sequence[Any], *_: object) -> bool:
        return any(event.type == kind for event in _events(writes))

    return meant


def _events(writes: Sequence[Any]) -> Iterator[Event]:
    return (event for write in writes for event in write.effect.events)


POINTS = {
    "after claim": Point("claim_runs", False, lambda request, claimed: bool(claimed)),
    "after intent": Point("update_runs", False, _tells("host.running")),
    "in mid-command": Point("renew_leases", False, lambda *_: True),
    "before result": Point("update_runs", True, _tells("host.success")),
    "in mid-output": Point("append", True, lambda *args: args[3] > 0),
    "before the end": Point("update_runs", True, _tells("run.success")),
    "before renewal": Point("renew_leases", True, lambda *_: True),
}
"""Seven; the eighth, before a broker's message is acknowledged, needs a broker."""
WRITES = ("update_runs", "update_run", "append", "release_lease")


class Freezing:
    """A store before which the whole process stops, once. Not while another call is under way: a
    frozen process must not hold a lock of SQLite's, which has nobody to take it away."""

    def __init__(self, store: Any, point: Point | None) -> None:
        self._real = store
        self._point = point
        self._thawed = False
        self._under_way = 0
        self.durable: bool = store.durable
        for name in METHODS:
            if hasattr(store, name):
                setattr(self, name, self._through(name))

    def _through(self, name: str) -> Callable[..., Awaitable[Any]]:
        real = getattr(self._real, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            point = self._point if self._point and self._point.method == name else None
            if point and point.before and point.meant(*args):
                await self._freeze()
            self._under_way += 1
            try:
                answer = await real(*args, **kwargs)
            except tenure.TenureError as error:
                self._answered(name, type(error).__name__)
                raise
            finally:
                self._under_way -= 1
            if point and not point.before and point.meant(*args, answer):
                await self._freeze()
            elif name == "update_runs":
                for outcome in answer:
                    self._answered(name, type(outcome).__name__)
            else:
                self._answered(name, "accepted")
            return answer

        return call

    def _answered(self, name: str, how: str) -> None:
        if self._thawed and name in WRITES:
            print(name, how, flush=True)

    async def _freeze(self) -> None:
        if self._point is None:
            return
        self._point = None
        while self._under_way:
            await asyncio.sleep(0.001)
        print("freezes", time.time(), flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._thawed = True


# Wrong about place and time


def move_elsewhere() -> None:
    platform.node = lambda: "elsewhere"


def shift_wall_clock(ahead: float, speed: float) -> None:
    """All that this process can learn of the time of day; the monotonic clocks stay as they are."""
    true_ns, began = time.time_ns, time.time_ns()

    def wrong_ns() -> int:
        return began + int(ahead * 1e9) + int((true_ns() - began) * speed)

    class WrongDatetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.fromtimestamp(wrong_ns() / 1e9, tz)

    time.time_ns = wrong_ns
    time.time = lambda: wrong_ns() / 1e9
    tenure.system.datetime = WrongDatetime  # type: ignore[attr-defined]


async def serve(odd: Oddity) -> None:
    async with tenure.open_store(odd.url) as store:
        worker = tenure.Worker(
            Freezing(store, POINTS[odd.freeze] if odd.freeze else None),  # type: ignore[arg-type]
            pace=tenure.Pace(poll_interval=odd.poll, concurrency=3),
            timing=tenure.Timing(
                lease_duration=odd.lease, renew_interval=odd.renew, control_interval=0.2
            ),
            reconcile_interval=0.5,
            max_takeovers=1000,
            worker_id=odd.name,
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.drain)
        await worker.run()


if __name__ == "__main__":
    oddity = msgspec.json.decode(sys.argv[1], type=Oddity)
    if oddity.elsewhere:
        move_elsewhere()
    if oddity.ahead or oddity.speed != 1.0:
        shift_wall_clock(oddity.ahead, oddity.speed)
    asyncio.run(serve(oddity))
