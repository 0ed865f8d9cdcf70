"""What a run leaves behind in memory: nothing for the garbage collector to look for.

With hundreds of runs in flight its searches cost as much as the runs' own work. In a process of its
own: whatever other tests left running makes garbage too.
"""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, gc
import tenure
from tenure.stores.memory import InMemoryStore

@tenure.action("garbage.nothing")
async def nothing():
    pass

async def main():
    steps = [tenure.Step(name=name, action="garbage.nothing") for name in ("one", "two")]
    async with tenure.Runner(store=InMemoryStore()) as runner:
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        await runner.run(tenure.Workflow(name="tidy", steps=steps))
        gc.collect()
    kinds = {type(each) for each in gc.garbage}
    print(*sorted(str(kind) for kind in kinds if kind.__module__.startswith("tenure.")), sep="\\n")

asyncio.run(main())
"""


def test_objects_of_a_run_form_no_cycle() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
