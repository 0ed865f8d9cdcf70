"""A process that executes a run, tells a receiver of it, and never ends by itself.

``python -m tests.runtime_relay.runner_process STORE_URL RUN_ID HOOK_URL`` says ``begun`` when its
second step has.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import tenure
from tenure.model.snapshot import CallbackTarget
from tests.runtime_relay.hooks import AT_ONCE, EVERYTHING
from tests.runtime_relay.relay_process import ROOT


@tenure.action("teller.work")
async def work() -> None:
    """Done at once."""


@tenure.action("teller.wait")
async def wait_for_ever() -> None:
    print("begun", flush=True)
    await asyncio.Event().wait()


async def run_until_killed(url: str, run_id: str, hook: str) -> None:
    steps = [tenure.Step(name=name, action=f"teller.{name}") for name in ("work", "wait")]
    target = CallbackTarget(name="hook", url=hook, events=EVERYTHING)
    options = tenure.RunOptions(run_id=run_id, callbacks=[target])
    async with tenure.Runner(url, callbacks=AT_ONCE) as runner:
        await runner.run(tenure.Workflow(name="doomed", steps=steps), options)


@contextmanager
def teller(url: str, run_id: str, hook: str) -> Iterator[subprocess.Popen[str]]:
    """Its second step has begun; it is killed in the end, if nobody did before."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.runtime_relay.runner_process", url, run_id, hook],
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
