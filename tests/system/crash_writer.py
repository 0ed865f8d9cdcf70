"""A writer that can be killed at any moment, and what it was promised before.

``python -m tests.system.crash_writer STORE_URL SEED`` creates and updates runs and says after each
acknowledged write ``RUN_ID VERSION UPDATE_ID``, until it is killed.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

from tenure.bootstrap import open_store
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.model.update import Changes, HostChange, RunChange, StepChange, Update
from tenure.ports.store import RunStateStore
from tenure.system import new_owner_id
from tenure.testing.factories import embedded_run, end_run, owner_update, start_step

MOST_RUNS = 4
ROOT = Path(__file__).parents[2]


def progress(run: RunSnapshot, update_id: str, size: int) -> Update:
    """One number in three places of the record, and once more in the journal: half of it would
    show. Big ones take the kernel more than one moment to write."""
    number = str(run.version)
    tail = HostChange(message=number, stdout=number + "x" * size)
    changes = Changes(
        run=RunChange(message=number),
        steps={0: StepChange(message=number, hosts={"web1": tail})},
    )
    return owner_update(run, changes, update_id=update_id)


# The writer


async def write_until_killed(url: str, seed: int) -> None:
    chance = random.Random(seed)
    store: RunStateStore = open_store(url)
    runs: list[RunSnapshot] = []
    for number in count():
        if len(runs) < MOST_RUNS or chance.random() < 0.1:
            new = embedded_run(new_owner_id(), run_id=f"run-{seed:04}-{number:06}")
            runs.append(new.snapshot)
            receipt = await store.create_run(new)
            tell(new.snapshot.run_id, receipt.version, new.update_id)
            runs[-1] = await write(store, start_step(await store.get_run(new.snapshot.run_id)))
        place = chance.randrange(len(runs))
        if chance.random() < 0.1:
            await write(store, end_run(runs.pop(place), RunStatus.FAILED))
        else:
            size = chance.choice([0, 100, 20_000, 300_000])
            update = progress(runs[place], f"{seed}-{number}", size)
            runs[place] = await write(store, update)


async def write(store: RunStateStore, update: Update) -> RunSnapshot:
    receipt = await store.update_run(update)
    tell(update.run_id, receipt.version, update.update_id)
    return await store.get_run(update.run_id)


def tell(run_id: str, version: int, update_id: str) -> None:
    print(run_id, version, update_id, flush=True)


def killed_writer(url: str, seed: int) -> list[tuple[str, int, str]]:
    """What one writer was promised before it was killed."""
    chance = random.Random(-seed)
    enough, extra = chance.randrange(1, 20), chance.randrange(3_000_000)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.system.crash_writer", url, str(seed)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as writer:
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(enough)]
        # Anywhere within a write, not only right after one was acknowledged.
        deadline = time.perf_counter_ns() + extra
        while time.perf_counter_ns() < deadline:
            pass
        writer.kill()
        said += writer.stdout.readlines()
    assert writer.returncode == -9, "the writer failed by itself"
    whole = [line.split() for line in said if line.endswith("\n")]
    return [(run_id, int(version), update_id) for run_id, version, update_id in whole]


if __name__ == "__main__":
    asyncio.run(write_until_killed(sys.argv[1], int(sys.argv[2])))
