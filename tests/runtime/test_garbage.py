"""What a run leaves behind in memory: nothing for the garbage collector to look for.

With hundreds of runs in flight its searches cost as much as the runs' own work.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import tenure
from tenure.stores.memory import InMemoryStore


@tenure.action("garbage.nothing")
async def nothing() -> None:
    pass


@pytest.fixture
def garbage() -> Iterator[list[object]]:
    """What can be reached from nowhere but itself, in the end."""
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


async def test_objects_of_a_run_form_no_cycle(garbage: list[object]) -> None:
    steps = [tenure.Step(name=name, action="garbage.nothing") for name in ("one", "two")]
    async with tenure.Runner(store=InMemoryStore()) as runner:
        await runner.run(tenure.Workflow(name="tidy", steps=steps))
        gc.collect()
        ours = {type(each) for each in garbage if type(each).__module__.startswith("tenure.")}
    assert ours == set()
