"""Actions of an application, for the scenarios."""

from __future__ import annotations

from typing import Any

import tenure


@tenure.action("scenario.work")
async def work(answer: str = "done") -> dict[str, str]:
    return {"answer": answer}


@tenure.action("scenario.break")
async def break_down() -> None:
    raise RuntimeError("no disk left")


def steps(*actions: str, **rest: Any) -> tenure.Workflow:
    """A workflow with a step for each action, on two hosts."""
    hosts = {name: tenure.HostSpec(address="local") for name in ("web1", "web2")}
    return tenure.Workflow(
        name="deploy",
        steps=[
            tenure.Step(name=f"step {number}", action=f"scenario.{action}")
            for number, action in enumerate(actions, 1)
        ],
        inventory=tenure.Inventory(hosts=hosts),
        **rest,
    )


class Calls:
    """A store that notes what it is asked, in front of the application's own."""

    def __init__(self, store: tenure.RunStateStore) -> None:
        self._store = store
        self.durable = store.durable
        self.names: list[str] = []
        self.run_ids: list[str] = []

    async def create_run(self, new: Any) -> Any:
        self.names.append("create_run")
        self.run_ids.append(new.snapshot.run_id)
        return await self._store.create_run(new)

    async def update_run(self, update: Any) -> Any:
        self.names.append("update_run")
        self.run_ids.append(update.run_id)
        return await self._store.update_run(update)

    async def get_run(self, run_id: str) -> tenure.RunSnapshot:
        self.names.append("get_run")
        return await self._store.get_run(run_id)

    async def list_runs(self, *args: Any, **kwargs: Any) -> Any:
        self.names.append("list_runs")
        return await self._store.list_runs(*args, **kwargs)
