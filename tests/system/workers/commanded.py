"""Runs that come by ``tenure submit``: no runner of the test's process looks for abandoned ones."""

from __future__ import annotations

import tenure
from tenure.model.status import StepStatus
from tests.system.workers.fleet import Fleet, WorkerProcess

LONG = """
version: v1
name: long
steps:
  - {name: one, action: cmd.run, args: {cmd: "true"}}
  - {name: two, action: cmd.run, args: {cmd: "sleep 600"}}
"""


async def submitted(fleet: Fleet, run_id: str) -> None:
    flow = fleet.folder / "long.yaml"
    flow.write_text(LONG)
    await fleet.command("submit", str(flow), "--run-id", run_id)


async def in_its_second_step(
    fleet: Fleet, worker: WorkerProcess, run_id: str
) -> tenure.RunSnapshot:
    await fleet.serving(worker)
    await submitted(fleet, run_id)
    return await fleet.until(run_id, lambda run: run.steps[1].status is StepStatus.RUNNING)
