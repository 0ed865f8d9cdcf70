"""Tasks for tests."""

from __future__ import annotations

from typing import Any

from tenure.ports.execution import Endpoint, Task

HERE = Endpoint(name="here", address="local")


def new_task(action: str, args: dict[str, Any] | None = None, **rest: Any) -> Task:
    return Task(
        task_id="run-1:0:here:1",
        run_id="run-1",
        step="step",
        step_index=0,
        host=rest.pop("host", HERE),
        action=action,
        args=args or {},
        **rest,
    )
