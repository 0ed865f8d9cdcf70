"""One command on many local hosts: a whole durable run against bare asyncio subprocesses."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from time import perf_counter

import tenure
from benchmarks.figures import Figure
from tenure.stores.sqlite import SQLiteStore

HOSTS = 200
AT_ONCE = 50
ATTEMPTS = 5


def measure() -> list[Figure]:
    return [asyncio.run(_measure())]


async def _measure() -> Figure:
    workflow = tenure.Workflow(
        name="fan-out",
        inventory=tenure.Inventory(
            hosts={f"host{number:03}": tenure.HostSpec(address="local") for number in range(HOSTS)}
        ),
        steps=[
            tenure.Step(name="true", action="cmd.run", args={"cmd": "true"}, concurrency=AT_ONCE)
        ],
    )
    ours: list[float] = []
    bare: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        async with (
            await SQLiteStore.open(Path(folder) / "runs.db") as store,
            tenure.Runner(store=store) as runner,
        ):
            for _ in range(ATTEMPTS):
                ours.append(await _ours(runner, workflow))
                bare.append(await _bare())
    return Figure(
        name="true on 200 local hosts", unit="s", ours=min(ours), limit=min(bare), at_most=2
    )


async def _ours(runner: tenure.Runner, workflow: tenure.Workflow) -> float:
    start = perf_counter()
    run = await runner.run(workflow)
    spent = perf_counter() - start
    if run.status != "success":
        raise RuntimeError(f"{run.run_id} ended as {run.status}: {run.message}")
    return spent


async def _bare() -> float:
    room = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with room:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                "true",
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            await process.communicate()

    start = perf_counter()
    await asyncio.gather(*(one() for _ in range(HOSTS)))
    return perf_counter() - start
