"""Actions of your own: a decorated function is all it takes.

Its parameters are the arguments of the step, checked before anything runs; what it returns are
variables for later steps; an exception is a failure of that host, and only of that. An action runs
in this process. To do something on the host, take a ``Transport`` and start a command there.

    python examples/custom_action.py
"""

from __future__ import annotations

import asyncio
from typing import Literal

import tenure
from tenure.ports.execution import Command, Output, Transport

STOCK = {"lamp": 12, "chair": 1}


@tenure.action("stock.reserve")
async def reserve(item: str, count: int = 1) -> dict[str, int]:
    """Take items out of the stock."""
    if STOCK.get(item, 0) < count:
        raise LookupError(f"only {STOCK.get(item, 0)} of {item} left")
    STOCK[item] -= count
    return {"LEFT": STOCK[item]}


@tenure.action("service.ensure")
async def ensure(
    name: str,
    state: Literal["started", "stopped"],
    task: tenure.Task,
    transport: Transport,
    output: Output,
) -> tenure.TaskResult:
    """Bring a service of the host into a state."""
    script = f'echo "{state}: $1 on $TENURE_HOST"'  # stands for: systemctl …
    command = Command(argv=("/bin/sh", "-c", script, "sh", name), env=task.env)
    end = await transport.run(task.host, command, output)
    if end.code:
        return tenure.TaskResult(status=tenure.HostStatus.FAILED, exit_code=end.code)
    return tenure.TaskResult(changed=True, message=f"{name} is {state}")


WORKFLOW = """
version: v1
name: sell
inventory:
  hosts:
    shop1: {address: local}
    shop2: {address: local}
steps:
  - name: reserve
    targets: [shop1]
    action: stock.reserve
    args: {item: "${item}", count: 2}
  - name: serve
    action: service.ensure
    args: {name: till, state: started}
    when: LEFT > 0
"""


async def main() -> None:
    workflow = tenure.read_workflow(WORKFLOW)
    async with tenure.Runner(tracking=False) as runner:
        for item in ("lamp", "chair"):
            run = await runner.run(workflow, tenure.RunOptions(vars={"item": item}))
            print(f"{item}: {run.status}" + (f" ({run.message})" if run.message else ""))
            for step in run.steps:
                for host, at in step.hosts.items():
                    said = at.stdout or at.message or at.vars or ""
                    print(f"  {step.name} {host} {at.status} {said}".rstrip())

    print("a mistake is found before anything runs:")
    try:
        tenure.read_workflow(WORKFLOW.replace("started", "stared"), source="sell.yaml")
    except tenure.InvalidWorkflow as invalid:
        print(f"  {invalid.mistakes[0]}")


if __name__ == "__main__":
    asyncio.run(main())
