"""Runs that pass through a store at a steady rate.

python -m benchmarks.passing_runs STORE RATE
"""

from __future__ import annotations

import asyncio
import sys

import tenure
from benchmarks.runs import IN_FLIGHT, no_op_workflow


async def _pass(url: str, rate: float) -> None:
    loop, workflow = asyncio.get_running_loop(), no_op_workflow()
    under_way: set[asyncio.Task[object]] = set()
    async with tenure.open_store(url) as store, tenure.Runner(store) as runner:
        begun, began = 0, loop.time()
        print("passing", flush=True)
        while True:
            while begun < (loop.time() - began) * rate and len(under_way) < IN_FLIGHT:
                task = asyncio.create_task(runner.run(workflow))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                begun += 1
            await asyncio.sleep(0.005)


if __name__ == "__main__":
    asyncio.run(_pass(sys.argv[1], float(sys.argv[2])))
