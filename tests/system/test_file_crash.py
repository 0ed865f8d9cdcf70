"""A writer killed at any moment loses nothing it was told is stored, and leaves nothing half.

This file is also the writer: ``python test_file_crash.py DIRECTORY SEED`` writes and says after
each acknowledged write ``RUN_ID VERSION UPDATE_ID``, until it is killed.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections import defaultdict
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenure.model.query import RunFilter
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.model.update import Changes, HostChange, RunChange, StepChange, Update
from tenure.stores.file import FileStore
from tenure.stores.file.frames import unframe
from tenure.system import new_owner_id
from tenure.testing.factories import (
    annotate,
    embedded_run,
    end_run,
    operator_status,
    owner_update,
    start_step,
)

KILLS = 60
KILLS_PER_DIRECTORY = 10
SEED = 1000
MOST_RUNS = 4
OPEN = frozenset({RunStatus.QUEUED, RunStatus.RUNNING})


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


async def write_until_killed(directory: str, seed: int) -> None:
    chance = random.Random(seed)
    store = FileStore(directory)
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


async def write(store: FileStore, update: Update) -> RunSnapshot:
    receipt = await store.update_run(update)
    tell(update.run_id, receipt.version, update.update_id)
    return await store.get_run(update.run_id)


def tell(run_id: str, version: int, update_id: str) -> None:
    print(run_id, version, update_id, flush=True)


# The test


def killed_writer(directory: Path, seed: int) -> list[tuple[str, int, str]]:
    """What one writer was promised before it was killed."""
    chance = random.Random(-seed)
    enough, extra = chance.randrange(1, 40), chance.randrange(3_000_000)
    with subprocess.Popen(
        [sys.executable, __file__, str(directory), str(seed)], stdout=subprocess.PIPE, text=True
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


def records_of(directory: Path, run_id: str) -> list[dict[str, Any]]:
    """Read without the store: whole lines, the last one perhaps cut short."""
    (path,) = directory.glob(f"{run_id}.*.journal")
    payloads = [unframe(line) for line in path.read_bytes().splitlines(keepends=True)]
    assert None not in payloads[:-1]
    return [msgspec.json.decode(payload) for payload in payloads if payload is not None]


async def check(store: FileStore, directory: Path, run_id: str, promised: dict[int, str]) -> None:
    run = await store.get_run(run_id)
    records = records_of(directory, run_id)
    assert [record["version"] for record in records] == list(range(1, run.version + 1))
    for version, update_id in promised.items():
        assert run.version >= version, "an acknowledged write is gone"
        assert records[version - 1]["write"]["update_id"] == update_id
    if run.version > 2 and not run.ended:
        step = run.steps[0]
        said = {run.message, step.message, step.hosts["web1"].message}
        assert said == {str(run.version - 1)}, "half of a write"
        assert (step.hosts["web1"].stdout or "").rstrip("x") in said


@pytest.mark.slow
async def test_killed_writer_loses_nothing(tmp_path: Path) -> None:
    promised: dict[str, dict[int, str]] = defaultdict(dict)
    for number in range(KILLS):
        directory = tmp_path / str(number // KILLS_PER_DIRECTORY)
        promises = killed_writer(directory, SEED + number)
        for run_id, version, update_id in promises:
            promised[run_id][version] = update_id
        store = FileStore(directory)
        where = RunFilter(statuses=OPEN)
        left = [item.run_id for item in (await store.list_runs(where, limit=1000)).items]
        for run_id in {run_id for run_id, _, _ in promises} | set(left):
            await check(store, directory, run_id, promised[run_id])
        for run_id in left:
            assert not await store.is_live(run_id)
            # Life goes on behind whatever the killed writer left at the end of the file.
            run = await store.get_run(run_id)
            await store.update_run(annotate(run, found="dead"))
            await store.update_run(operator_status(run, RunStatus.INTERRUPTED))
            await check(store, directory, run_id, promised[run_id])
        await store.close()
        assert {path.suffix for path in directory.iterdir()} <= {".journal"}
    assert len(promised) >= KILLS


if __name__ == "__main__":
    asyncio.run(write_until_killed(sys.argv[1], int(sys.argv[2])))
