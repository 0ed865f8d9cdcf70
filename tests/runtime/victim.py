"""A process that executes a run, tells a receiver of it, and is killed in the middle of it.

``python -m tests.runtime.victim STORE_URL RUN_ID HOOK_URL`` says ``begun`` when its second step has
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
from tests.runtime_relay.hooks import AT_ONCE, EVERYTHING

ROOT = Path(__file__).parents[2]
NOWHERE = "http://127.0.0.1:9/hook"


@tenure.action("victim.work")
async def work() -> None:
    """Done at once."""


@tenure.action("victim.wait")
async def wait_for_ever() -> None:
    print("begun", flush=True)
    await asyncio.Event().wait()


async def run_until_killed(url: str, run_id: str, hook: str) -> None:
    actions = {"one": "victim.work", "two": "victim.wait", "three": "victim.work"}
    steps = [tenure.Step(name=name, action=action) for name, action in actions.items()]
    target = CallbackTarget(name="hook", url=hook, events=EVERYTHING)
    async with tenure.Runner(url, callbacks=AT_ONCE) as runner:
        options = tenure.RunOptions(run_id=run_id, callbacks=[target])
        await runner.run(tenure.Workflow(name="doomed", steps=steps), options)


@contextmanager
def victim(url: str, run_id: str, hook: str = NOWHERE) -> Iterator[subprocess.Popen[str]]:
    """Its task has begun; it is killed in the end, if it was not before."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.runtime.victim", url, run_id, hook],
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
    asyncio.run(run_until_killed(*sys.argv[1:]))
