"""Starting processes through a supervisor against bare asyncio, and how small it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter

from benchmarks.figures import Figure, typical
from tenure.ports.execution import Command, Endpoint
from tenure.transports.local import LocalTransport
from tenure.transports.supervisor.client import SupervisedStarter

ROUNDS = {1: (300, 1), 50: (21, 200)}
"""How many at a time: how many rounds, of how many starts each."""
HERE = Endpoint(name="here", address="local")
TRUE = Command(argv=("/bin/true",))
SMALL = 15.0


class Unheard:
    async def write(self, stream: str, data: bytes) -> None:
        """``true`` says nothing."""


def measure() -> list[Figure]:
    return asyncio.run(_measure())


async def _measure() -> list[Figure]:
    transport = LocalTransport(SupervisedStarter())

    async def supervised() -> None:
        await transport.run(HERE, TRUE, Unheard())

    try:
        await supervised()  # starts the supervisor
        figures = [await _compare(supervised, at_once) for at_once in ROUNDS]
        figures.append(
            Figure(
                name="supervisor, resident",
                unit="MB",
                ours=_resident_megabytes(),
                limit=SMALL,
                at_most=1,
            )
        )
    finally:
        await transport.close()
    return figures


async def _compare(supervised: Callable[[], Awaitable[None]], at_once: int) -> Figure:
    """By turns, so that whatever else the machine does meets both."""
    rounds, count = ROUNDS[at_once]
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(rounds):
        ours.append(await _batch(supervised, at_once, count))
        bare.append(await _batch(_bare, at_once, count))
    return Figure(
        name=f"start `true` supervised, {at_once} at a time",
        unit="ms",
        ours=typical(ours),
        limit=typical(bare),
        at_most=1.3,
    )


async def _batch(start: Callable[[], Awaitable[None]], at_once: int, count: int) -> float:
    room = asyncio.Semaphore(at_once)

    async def one() -> None:
        async with room:
            await start()

    begun = perf_counter()
    await asyncio.gather(*(one() for _ in range(count)))
    return (perf_counter() - begun) / count * 1000


async def _bare() -> None:
    process = await asyncio.create_subprocess_exec(
        "/bin/true", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    await process.communicate()


def _resident_megabytes() -> float:
    [supervisor] = Path("/proc/thread-self/children").read_text().split()
    lines = Path(f"/proc/{supervisor}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
