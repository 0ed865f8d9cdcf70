"""Many runs at once, for whoever measures them."""

from __future__ import annotations

import asyncio

import tenure

IN_FLIGHT = 200


@tenure.action("benchmark.nothing")
async def nothing() -> None:
    """A step that costs nothing, so that what is measured is ours."""


def no_op_workflow(steps: int = 3) -> tenure.Workflow:
    return tenure.Workflow(
        name="no-op",
        steps=[
            tenure.Step(name=f"step-{number}", action="benchmark.nothing")
            for number in range(steps)
        ],
    )


async def many_runs(runner: tenure.Runner, workflow: tenure.Workflow, count: int) -> None:
    left = iter(range(count))

    async def one_after_another() -> None:
        for _ in left:
            run = await runner.run(workflow)
            if run.status != "success":
                raise RuntimeError(f"{run.run_id} ended as {run.status}: {run.message}")

    await asyncio.gather(*(one_after_another() for _ in range(min(IN_FLIGHT, count))))
