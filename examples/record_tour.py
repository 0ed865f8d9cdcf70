"""A tour of one run's record: create, claim, update, lose an owner, end, look back.

    python examples/record_tour.py [store URL]

Nothing is executed on any host: you see what stands below ``tenure run``, and what a worker of your
own would write.
"""

from __future__ import annotations

import asyncio
import os
import sys
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import Any

import tenure
from tenure.model import compose
from tenure.model.leases import Lease
from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import HostStatus, Recovery, RunStatus, StepStatus
from tenure.model.update import (
    Changes,
    HostChange,
    LeaseRequest,
    Position,
    RecordedEvent,
    RunChange,
    StepChange,
    Update,
)
from tenure.system import new_owner_id, new_run_id, new_update_id

HOSTS = ("web1", "web2", "web3")
STEPS = ("drain", "restart")


def default_url() -> str:
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    (data / "tenure").mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{data.absolute()}/tenure/tour.db"


class Tour:
    """One run in one store, and how far its journal has been shown."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.run_id = new_run_id()
        self.shown = Position()

    async def show_changes(self) -> None:
        """One line for the newest version: what changed, hosts that did the same together."""
        events: list[RecordedEvent] = await self.store.read_events(self.run_id, self.shown)
        self.shown = events[-1].position
        parts = []
        for (kind, step), same in groupby(events, key=lambda event: (event.type, event.step)):
            hosts = [event.host for event in same if event.host]
            parts.append(" ".join([kind, *(hosts or [step or ""])]).strip())
        print(f"   v{self.shown.version}  fence {events[-1].fence}  {' · '.join(parts)}")

    async def create(self) -> None:
        hosts = {name: HostState() for name in HOSTS}
        steps = (StepState(index=i, name=name, hosts=hosts) for i, name in enumerate(STEPS))
        run = RunSnapshot(
            run_id=self.run_id,
            workflow_name="rolling-restart",
            recovery=Recovery.RESUME,
            steps=tuple(steps),
        )
        await self.store.create_run(compose.new_run(run, new_update_id(), iter(())))
        await self.show_changes()

    async def claim(self, owner_id: str, seconds: float) -> Lease:
        ask = LeaseRequest(owner_id=owner_id, seconds=seconds, claim_id=new_update_id())
        claimed = await self.store.claim_run(self.run_id, ask)
        await self.show_changes()
        lease: Lease = claimed.lease
        return lease

    async def update(
        self, lease: Lease, steps: dict[int, StepChange], run: RunChange = RunChange()
    ) -> None:
        now = await self.store.get_run(self.run_id)
        update = Update(
            run_id=self.run_id,
            update_id=new_update_id(),
            base_version=now.version,
            lease=lease.fencing,
            effect=compose.effect_of(now, Changes(run=run, steps=steps), iter(())),
        )
        await self.store.update_run(update)
        await self.show_changes()


def every_host(step: StepStatus, host: HostStatus) -> StepChange:
    return StepChange(status=step, hosts={name: HostChange(status=host) for name in HOSTS})


START = every_host(StepStatus.RUNNING, HostStatus.RUNNING)
DONE = every_host(StepStatus.SUCCESS, HostStatus.SUCCESS)


async def walk(store: Any) -> None:
    tour = Tour(store)
    print(f"1. A run is born: {len(STEPS)} steps on {len(HOSTS)} hosts. Its id: {tour.run_id}")
    await tour.create()

    print("\n2. Worker A claims it and works. Each update is one version, written whole.")
    # A lease of no length ends at once and spares you the wait. A may still write: an ended
    # lease takes nothing away until somebody claims.
    a = await tour.claim(new_owner_id(), seconds=0)
    await tour.update(a, {0: START}, RunChange(status=RunStatus.RUNNING))
    await tour.update(a, {0: DONE, 1: START})

    print(
        "\n3. Worker A freezes. Its lease ends, and worker B takes the run over: the fence rises."
    )
    b = await tour.claim(new_owner_id(), seconds=60)

    print("\n4. Worker A thaws and reports its result, as if nothing had happened:")
    try:
        await tour.update(a, {1: DONE})
    except tenure.LeaseLost as refusal:
        print(f"   refused, nothing written. LeaseLost: fence {a.fence} < {refusal.fence}")

    print("\n5. Worker B carries on where the record stands. `drain` is done and stays done.")
    await tour.update(b, {1: DONE}, RunChange(status=RunStatus.SUCCESS, message="all restarted"))

    print("\n6. What everybody can read from now on, also after this process is gone:")
    run = await store.get_run(tour.run_id)
    print(f"   {run.status} at version {run.version}, {run.takeovers} takeover, {run.message!r}")
    for step in run.steps:
        print(f"   {step.name:<9}", *(f"{host}={at.status}" for host, at in step.hosts.items()))

    print("\n7. Its journal, every status in order of version.number:")
    events: list[RecordedEvent] = await store.read_events(tour.run_id)
    journal = " · ".join(
        " ".join(filter(None, (str(event.position), event.type, event.host))) for event in events
    )
    print(fill(journal, 94, initial_indent="   ", subsequent_indent="   "))

    page = await store.list_runs(tenure.RunFilter(workflow_name="rolling-restart"), limit=5)
    print("\n8. The newest runs in this store; run the tour again and this one is still there:")
    for one in page.items:
        mark = "  <- this one" if one.run_id == tour.run_id else ""
        print(f"   {one.run_id}  {one.status:<8} {one.created_at:%Y-%m-%d %H:%M:%S}Z{mark}")


async def main(url: str) -> None:
    print(f"Tenure {tenure.__version__}: a tour of one run's record\nStore: {url}\n")
    async with tenure.open_store(url) as store:
        await walk(store)
    print("\nRead next: docs/concepts.md (why the fence rises).")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else default_url()))
