"""A writer killed at any moment loses nothing it was told is stored, and leaves nothing half."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenure.model.query import RunFilter
from tenure.model.status import RunStatus
from tenure.stores.file import FileStore, unframe
from tenure.testing.factories import (
    annotate,
    operator_status,
)
from tests.system.crash_writer import killed_writer

FEW = 10
MANY = pytest.param(50, marks=pytest.mark.long)
KILLS_PER_DIRECTORY = 5
SEED = 1000
OPEN = frozenset({RunStatus.QUEUED, RunStatus.RUNNING})


def records_of(directory: Path, run_id: str) -> list[dict[str, Any]]:
    """Read without the store: whole lines, the last one perhaps cut short."""
    (path,) = directory.glob(f"{run_id}.*.journal")
    payloads = [unframe(line) for line in path.read_bytes().split(b"\n")[:-1]]
    return [msgspec.json.decode(payload or b"damaged") for payload in payloads]


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
@pytest.mark.parametrize("kills", [FEW, MANY])
async def test_killed_writer_loses_nothing(tmp_path: Path, kills: int) -> None:
    promised: dict[str, dict[int, str]] = defaultdict(dict)
    for number in range(kills):
        directory = tmp_path / str(number // KILLS_PER_DIRECTORY)
        promises = killed_writer(directory.as_uri(), SEED + number)
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
    assert len(promised) >= kills
