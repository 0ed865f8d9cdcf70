"""Pruning a database: nothing is left behind, whoever is stopped where, and nobody waits long."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import pytest

from tenure.model.errors import LeaseLost, RunNotFound, StoreUnavailable
from tenure.model.outbox import Delivered
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.ports.store import LogKey
from tenure.stores.sqlite import SQLiteStore, admin
from tenure.stores.sqlite.logs import RunOutput
from tenure.testing.contracts.acts import create_embedded, start_first_step, write
from tenure.testing.factories import (
    HOOK,
    change_run,
    embedded_run,
    end_run,
    fencing_of,
    planned_steps,
    start_step,
    unique,
)

pytestmark = pytest.mark.slow


OUT = LogKey(step=0, host="web1", stream="stdout")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    async with await SQLiteStore.open(path) as store:
        yield store


async def ended(store: SQLiteStore, **fields: Any) -> RunSnapshot:
    """A run with a row in every table, output, and nothing left to send."""
    given = {"labels": {"team": "web"}, "definition": "name: old", "callbacks": (HOOK,)}
    run = await start_first_step(store, await create_embedded(store, **(given | fields)))
    await store.append(run.run_id, fencing_of(run), OUT, 0, b"hello")
    run = await write(store, end_run(run, RunStatus.FAILED))
    while held := await store.claim_deliveries(unique("token")):
        for delivery in held:
            await store.settle_delivery(delivery.id, delivery.token or "", Delivered())
    return run


def remains(path: Path) -> dict[str, int]:
    """How many rows each table has, and how many folders there are; nothing for none."""
    connection = apsw.Connection(str(path))
    counts = {"output": len(list(Path(f"{path}.logs").glob("*")))}
    for (table,) in connection.execute("select name from sqlite_schema where type = 'table'"):
        if table not in ("sqlite_sequence", "counters", "secrets"):
            ((count,),) = connection.execute(f"select count(*) from {table}")
            counts[str(table)] = int(count)
    return {name: count for name, count in counts.items() if count}


async def test_nothing_is_left_of_a_pruned_run(path: Path, store: SQLiteStore) -> None:
    await ended(store)
    tables = {"runs", "run_specs", "run_labels", "definitions", "steps", "tasks", "journal"}
    assert set(remains(path)) == tables | {"deliveries", "output"}
    assert await store.prune_runs(0.0) == 1
    assert remains(path) == {}


async def test_definition_goes_with_the_last_run_that_uses_it(
    path: Path, store: SQLiteStore
) -> None:
    await ended(store)
    last = await create_embedded(store, definition="name: old")
    assert await store.prune_runs(0.0) == 1
    assert await store.get_definition(last.run_id) == "name: old"
    await store.update_run(end_run(last))
    assert await store.prune_runs(0.0) == 1
    assert remains(path) == {}


async def test_pruning_nothing_waits_for_nobody(path: Path, store: SQLiteStore) -> None:
    """Not even for a writer: there is nothing to write."""
    other = apsw.Connection(str(path))
    other.execute("begin immediate")
    assert await store.prune_runs(0.0) == 0
    other.execute("rollback")


# Whoever is stopped in between


class Stopped(Exception):
    pass


@pytest.mark.parametrize("stage", ["noted", "clear_some", "_remove_output", "forget"])
async def test_next_prune_goes_on_where_one_was_stopped(
    path: Path, store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    def stop(*_: object) -> None:
        raise Stopped

    runs = [await ended(store) for _ in range(2)]
    with monkeypatch.context() as patch:
        owner: Any = admin if stage.startswith("_") else admin.Pruner
        patch.setattr(owner, stage, stop)
        with pytest.raises(Stopped):
            await store.prune_runs(0.0)
    assert remains(path)["pruned"] == 2
    for run in runs:
        with pytest.raises(RunNotFound):
            await store.get_run(run.run_id)
    (problem,) = (await store.check_store()).problems
    assert "Pruned runs have left rows or output behind: 2. Prune once more" in problem
    async with await SQLiteStore.open(path) as other:
        assert await other.prune_runs(0.0) == 0
    assert remains(path) == {}
    assert (await store.check_store()).problems == ()


KILLED_IN_MID_PRUNE = """
import asyncio, os, signal, sys
from tenure.stores.sqlite import SQLiteStore, admin

def die(noted):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    admin._remove_output = die
    async with await SQLiteStore.open(sys.argv[1]) as store:
        await store.prune_runs(0.0)

asyncio.run(main())
"""


async def test_killed_process_leaves_only_what_the_next_prune_removes(
    path: Path, store: SQLiteStore
) -> None:
    run = await ended(store)
    child = subprocess.run([sys.executable, "-c", KILLED_IN_MID_PRUNE, str(path)], check=False)
    assert child.returncode == -signal.SIGKILL
    assert remains(path) == {"pruned": 1, "output": 1}
    again = await create_embedded(store, run_id=run.run_id)
    assert (await store.read(again.run_id, OUT)).size == 0
    assert await store.prune_runs(0.0) == 0
    assert "pruned" not in remains(path)
    assert "output" not in remains(path)
    assert (await store.get_run(again.run_id)).version == 1


async def test_output_that_cannot_be_removed_is_named_and_removed_later(
    path: Path, store: SQLiteStore
) -> None:
    stuck, other = await ended(store), await ended(store)
    folder = store._logging.find(stuck.run_id).folder
    (folder / "somebody's folder").mkdir()
    with pytest.raises(StoreUnavailable, match=r"output of 1 pruned runs .* prune again"):
        await store.prune_runs(0.0)
    assert remains(path) == {"pruned": 1, "output": 1}
    for run in (stuck, other):
        with pytest.raises(RunNotFound):
            await store.get_run(run.run_id)
    (folder / "somebody's folder").rmdir()
    assert await store.prune_runs(0.0) == 0
    assert remains(path) == {}


# Beside others


async def test_writers_get_in_between_portions_of_a_large_run(
    path: Path, store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rows a run has, and however many runs are pruned, a transaction stays small."""
    monkeypatch.setattr(admin, "ROWS_AT_ONCE", 10)
    monkeypatch.setattr(admin, "RUNS_AT_ONCE", 2)
    hosts = tuple(f"host-{number:02}" for number in range(40))
    wide = await create_embedded(store, steps=planned_steps(1, hosts))
    wide = await write(store, start_step(wide, 0, hosts))
    await store.update_run(end_run(wide, RunStatus.FAILED))
    for _ in range(4):
        await ended(store, definition=None, labels={})
    connection = store._writer.connection
    written = [connection.total_changes()]

    def note() -> bool:
        written.append(connection.total_changes())
        return False

    connection.set_commit_hook(note)
    assert await store.prune_runs(0.0) == 5
    connection.set_commit_hook(None)
    sizes = [after - before for before, after in pairwise(written)]
    assert len(sizes) > 8
    assert max(sizes) <= 10
    assert remains(path) == {}


async def test_callback_sent_again_just_before_the_prune_keeps_its_run(store: SQLiteStore) -> None:
    """Candidates are looked for outside the transaction that removes them."""
    sent, other = await ended(store), await ended(store)
    found = await store._reader.run(store._reading.prunable, 0.0, 10)
    (delivery, *_) = (await store.list_deliveries(run_id=sent.run_id)).items
    await store.requeue_delivery(delivery.id)
    assert await store._writer.run(store._pruner.hide, found) == 1
    assert await store.get_run(sent.run_id) == sent
    with pytest.raises(RunNotFound):
        await store.get_run(other.run_id)


async def test_run_remembered_by_a_store_that_prunes_it_is_gone_for_it_too(path: Path) -> None:
    async with await SQLiteStore.open(path) as one, await SQLiteStore.open(path) as other:
        run = await create_embedded(one)
        await one.update_run(change_run(run, message="remembered here"))
        run = await one.get_run(run.run_id)
        await other.update_run(end_run(run))
        assert await one.prune_runs(0.0) == 1
        with pytest.raises(RunNotFound):
            await one.update_run(change_run(run, message="late"))


async def test_run_remembered_by_one_store_is_not_taken_for_its_successor(path: Path) -> None:
    """Another store prunes it and creates a run of the same id: same row number, same id, same
    version would fool a memory that goes by them."""
    async with await SQLiteStore.open(path) as one, await SQLiteStore.open(path) as other:
        run = await create_embedded(one, "owner-a")
        await other.update_run(end_run(run))
        assert await other.prune_runs(0.0) == 1
        await other.create_run(embedded_run("owner-b", run_id=run.run_id))
        with pytest.raises(LeaseLost):
            await one.update_run(change_run(run, message="late"))
        assert (await one.get_run(run.run_id)).owner_id == "owner-b"


@pytest.mark.parametrize("question", ["read", "list_logs"])
async def test_output_pruned_while_it_is_looked_for_is_not_taken_for_none(
    path: Path, store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    run = await ended(store)
    output = store._logging.find(run.run_id)

    def prune() -> None:
        apsw.Connection(str(path)).execute("delete from runs")
        output.remove()

    def file(self: RunOutput, key: LogKey) -> Path:
        prune()
        return self.folder / "gone"

    def streams(self: RunOutput) -> list[LogKey]:
        prune()
        return []

    monkeypatch.setattr(RunOutput, "file", file)
    monkeypatch.setattr(RunOutput, "streams", streams)
    with pytest.raises(RunNotFound):
        await (store.read(run.run_id, OUT) if question == "read" else store.list_logs(run.run_id))


async def test_reader_of_the_feed_misses_nothing_after_the_newest_run_was_pruned(
    store: SQLiteStore,
) -> None:
    await ended(store)
    cursor = (await store.read_changes()).cursor
    assert await store.prune_runs(0.0) == 1
    run = await create_embedded(store)
    told = (await store.read_changes(cursor)).events
    assert list(told) == await store.read_events(run.run_id)
