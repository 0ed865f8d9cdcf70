"""A process that executes a run and is killed in the middle of it.

``python -m tests.runtime.victim STORE_URL RUN_ID [RUNNER_ID]`` says ``begun`` when its task has
begun, and never ends by itself.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tenure
from tenure.model.snapshot import CallbackTarget

ROOT = Path(__file__).parents[2]
HOOK = CallbackTarget(name="hook", url="https://hooks.example/run")


@tenure.action("victim.wait")
async def wait_for_ever() -> None:
    print("begun", flush=True)
    await asyncio.Event().wait()


async def run_until_killed(url: str, run_id: str, runner_id: str | None) -> None:
    workflow = tenure.Workflow(
        name="doomed",
        steps=[
            tenure.Step(name="one", action="victim.wait"),
            tenure.Step(name="two", action="victim.wait"),
        ],
    )
    async with tenure.Runner(url, runner_id=runner_id) as runner:
        await runner.run(workflow, tenure.RunOptions(run_id=run_id, callbacks=[HOOK]))


@contextmanager
def victim(url: str, run_id: str, *names: str) -> Iterator[subprocess.Popen[str]]:
    """Its task has begun; it is killed in the end, if nobody did before."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.runtime.victim", url, run_id, *names],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


if __name__ == "__main__":
    _, where, which, *name = sys.argv
    asyncio.run(run_until_killed(where, which, name[0] if name else None))
