"""One host's result in a run that has 5,000 hosts, against one that has 50."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from time import perf_counter

from benchmarks.figures import Figure, typical
from benchmarks.workload import OWNER, three_steps
from tenure.model.compose import effect_of, new_run
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import HostStatus, RunStatus, StepStatus
from tenure.model.update import (
    Changes,
    Fencing,
    HostChange,
    LeaseRequest,
    RunChange,
    StepChange,
    Update,
)
from tenure.stores.sqlite import SQLiteStore

NARROW, WIDE = 50, 5_000
RESULTS = 40


def measure() -> list[Figure]:
    return asyncio.run(_measure())


async def _measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        async with await SQLiteStore.open(Path(folder) / "runs.db") as store:
            narrow, wide = [await _running(store, size) for size in (NARROW, WIDE)]
            spent: dict[str, list[float]] = {narrow.run_id: [], wide.run_id: []}
            for number in range(RESULTS):
                for run in (narrow, wide):
                    update = _one_result(run, number)
                    start = perf_counter()
                    await store.update_run(update)
                    spent[run.run_id].append(perf_counter() - start)
    return [
        Figure(
            name="sqlite one host result: 5,000 hosts against 50",
            unit="ms",
            ours=typical(spent[wide.run_id]) * 1000,
            limit=typical(spent[narrow.run_id]) * 1000,
            at_most=2.0,
        )
    ]


async def _running(store: SQLiteStore, size: int) -> RunSnapshot:
    """Its first step runs on all hosts."""
    run_id = f"with-{size:06}-hosts"
    hosts = tuple(f"host{number:05}" for number in range(size))
    run = three_steps(run_id, hosts)
    lease = LeaseRequest(owner_id=OWNER, seconds=3600, claim_id=run_id)
    await store.create_run(new_run(run, f"create-{run_id}", iter(()), lease=lease))
    starts = {host: HostChange(status=HostStatus.RUNNING) for host in hosts}
    started = Changes(
        run=RunChange(status=RunStatus.RUNNING),
        steps={0: StepChange(status=StepStatus.RUNNING, hosts=starts)},
    )
    await store.update_run(_update(run, started, 1))
    return run


def _one_result(run: RunSnapshot, number: int) -> Update:
    done = HostChange(status=HostStatus.SUCCESS, exit_code=0, stdout="done\n")
    changes = Changes(steps={0: StepChange(hosts={f"host{number:05}": done})})
    return _update(run, changes, 2 + number)


def _update(run: RunSnapshot, changes: Changes, base_version: int) -> Update:
    return Update(
        run_id=run.run_id,
        update_id=f"{run.run_id}-{base_version}",
        base_version=base_version,
        lease=Fencing(OWNER, 1),
        effect=effect_of(run, changes, iter(())),
    )
