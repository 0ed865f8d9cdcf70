"""The file store beyond its contract (``tests/contracts/test_file.py``): what files get wrong."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tenure.model.errors import RunNotFound, StoreIncompatible, StoreRejected, StoreUnavailable
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.model.update import Position, Update
from tenure.ports.leases import LiveRuns
from tenure.ports.store import Definitions, EventLog, RunStateStore
from tenure.stores.file import FileStore, disk, journal, runs
from tenure.stores.file.turn import Turn
from tenure.stores.memory import InMemoryStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts.acts import record_of
from tenure.testing.factories import (
    annotate,
    cancel,
    change_run,
    embedded_run,
    end_run,
    finish_host,
    finish_step,
    new_run,
    planned_steps,
    start_step,
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FileStore]:
    store = FileStore(tmp_path)
    yield store
    await store.close()


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def owned(store: RunStateStore, **fields: Any) -> RunSnapshot:
    new = embedded_run(**fields)
    await store.create_run(new)
    return await store.get_run(new.snapshot.run_id)


async def then(store: RunStateStore, update: Update) -> RunSnapshot:
    await store.update_run(update)
    return await store.get_run(update.run_id)


async def whole_life(store: RunStateStore, run_id: str) -> RunSnapshot:
    """Every kind of write a run knows."""
    run = await owned(store, run_id=run_id, definition="steps: []", vars={"release": "1.4"})
    run = await then(store, start_step(run))
    run = await then(store, finish_host(run, stdout="done\n", exit_code=0, vars={"x": [1, None]}))
    run = await then(store, cancel(run))
    run = await then(store, finish_step(run))
    run = await then(store, end_run(run))
    return await then(store, annotate(run, note_id="the-note", found="later"))


async def test_has_the_powers_it_claims(store: FileStore) -> None:
    for protocol in (RunStateStore, EventLog, Definitions, LiveRuns):
        assert isinstance(store, protocol)
    assert store.durable


async def test_what_is_read_back_is_what_another_store_would_say(tmp_path: Path) -> None:
    """Replay, warm memory and the memory store agree to the last field."""
    clock = ManualClock()
    warm, memory = FileStore(tmp_path, clock), InMemoryStore(clock)
    expected = await whole_life(memory, "the-same-run")
    assert await whole_life(warm, "the-same-run") == expected
    cold = FileStore(tmp_path, clock)
    assert await cold.get_run("the-same-run") == expected
    assert await cold.get_definition("the-same-run") == "steps: []"
    assert await cold.read_events("the-same-run") == await memory.read_events("the-same-run")
    await warm.close()
    await cold.close()


async def test_events_are_read_from_any_position(store: FileStore) -> None:
    run = await whole_life(store, "told-in-pieces")
    told = await store.read_events(run.run_id)
    assert {event.version for event in told} == set(range(1, run.version + 1))
    for number, event in enumerate(told):
        assert await store.read_events(run.run_id, event.position) == told[number + 1 :]
    assert (
        await store.read_events(run.run_id, Position(2, 0), limit=2)
        == [event for event in told if event.position > (2, 0)][:2]
    )
    with pytest.raises(RunNotFound):
        await store.read_events("never-created")


async def test_two_stores_on_one_directory_see_each_other(tmp_path: Path) -> None:
    one, other = FileStore(tmp_path), FileStore(tmp_path)
    run = await owned(one)
    for number in range(5):
        run = await then(other, change_run(run, message=f"by other {number}"))
        assert record_of(await one.get_run(run.run_id)) == record_of(run)
        run = await then(one, change_run(run, message=f"by one {number}"))
        assert (await other.list_runs()).items[0].message == f"by one {number}"
    assert run.version == 11
    await one.close()
    await other.close()


async def test_writers_of_two_stores_never_share_a_base(tmp_path: Path) -> None:
    stores = [FileStore(tmp_path) for _ in range(3)]
    run = await owned(stores[0])
    notes = [annotate(run, number=number) for number in range(30)]
    receipts = await asyncio.gather(
        *(stores[number % 3].update_run(note) for number, note in enumerate(notes))
    )
    assert sorted(receipt.version for receipt in receipts) == list(range(2, 32))
    assert (await FileStore(tmp_path).get_run(run.run_id)).version == 31
    for store in stores:
        await store.close()


async def test_waiting_for_a_lock_stops_nobody_else(store: FileStore, tmp_path: Path) -> None:
    run, free = await owned(store), await owned(store)
    (path,) = tmp_path.glob(f"{run.run_id}.*.journal")
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = asyncio.create_task(store.update_run(change_run(run, message="later")))
        await store.update_run(change_run(free, message="at once"))
        assert not waiting.done()
    assert (await waiting).version == 2


async def test_update_costs_what_it_changes(store: FileStore, tmp_path: Path) -> None:
    hosts = tuple(f"host-{number}" for number in range(2000))
    run = await owned(store, steps=planned_steps(1, hosts))
    run = await then(store, start_step(run, 0, hosts[:3]))
    (path,) = tmp_path.glob("*.journal")
    before = path.stat().st_size
    await store.update_run(finish_host(run, 0, hosts[0]))
    assert path.stat().st_size - before < 1000


async def test_listing_reads_only_what_changed(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [new_run() for _ in range(5)]
    for new in made:
        await store.create_run(new)
    await store.list_runs()
    read: list[str] = []
    look = runs.FileRuns.look

    def counted(self: runs.FileRuns, run_id: str, turn: Turn) -> runs.Look:
        read.append(run_id)
        return look(self, run_id, turn)

    monkeypatch.setattr(runs.FileRuns, "look", counted)
    assert len((await store.list_runs()).items) == 5
    assert read == []
    await store.update_run(annotate(made[2].snapshot, changed=True))
    assert (await store.list_runs()).items[2].version == 2
    assert read == [made[2].snapshot.run_id]


async def test_memory_for_runs_is_bounded(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MAX_REPLAYED", 2)
    monkeypatch.setattr("tenure.stores.file.listing.MAX_REMEMBERED", 2)
    made = [await owned(store) for _ in range(5)]
    assert len((await store.list_runs()).items) == 5
    for run in made:
        assert (await then(store, change_run(run, message="still there"))).version == 2
    assert len(store._runs._journals) == 2
    assert len(store._listing._rows) == 2


async def test_file_made_anew_is_not_mistaken_for_the_old(store: FileStore, tmp_path: Path) -> None:
    """Somebody removes a journal by hand; the new one may even get the same inode."""
    await store.create_run(new_run(run_id="reborn-run", vars={"life": 1}))
    await store.update_run(annotate(new_run(run_id="reborn-run").snapshot, note=1))
    for path in tmp_path.glob("*.journal"):
        path.unlink()
    with pytest.raises(RunNotFound):
        await store.get_run("reborn-run")
    await store.create_run(new_run(run_id="reborn-run", vars={"life": 2, "more": "x" * 5000}))
    run = await store.get_run("reborn-run")
    assert (run.vars["life"], run.version) == (2, 1)


async def test_files_of_others_are_left_alone(store: FileStore, tmp_path: Path) -> None:
    strangers = ["notes.journal", "read.me", "run-000001.00000000.journal", "x.live"]
    for name in strangers:
        (tmp_path / name).write_text("not ours")
    await store.create_run(new_run())
    assert len((await store.list_runs()).items) == 1
    assert set(strangers) <= set(files(tmp_path))


@pytest.mark.parametrize("depth", [500, 930, 940, 950, 960, 970, 980, 985, 990, 2000])
async def test_value_is_either_refused_or_readable(
    store: FileStore, tmp_path: Path, depth: int
) -> None:
    """How deep JSON can be read depends on the reader's stack, so writing keeps a distance."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    try:
        await store.create_run(new_run(run_id="deep-one", vars={"deep": value}))
    except StoreRejected:
        assert depth > 900
        assert files(tmp_path) == []
    else:
        assert (await FileStore(tmp_path).get_run("deep-one")).vars == {"deep": value}


async def test_value_of_the_wrong_type_is_refused(store: FileStore, tmp_path: Path) -> None:
    with pytest.raises(StoreRejected):
        await store.create_run(new_run(run_id="wrong-type", timeout="soon"))
    assert files(tmp_path) == []
    run = await owned(store)
    with pytest.raises(StoreRejected):
        await store.update_run(change_run(run, message=42))
    assert (await store.get_run(run.run_id)).version == 1


# When the disk fails


def no_space(fd: int, data: bytes, offset: int) -> None:
    """A part arrives, then the disk is full."""
    os.pwrite(fd, data[: len(data) // 2], offset)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def broken(*_: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize(
    ("name", "fault", "advice"),
    [("write_all", no_space, "free some space"), ("sync", broken, "check the disk")],
)
@pytest.mark.parametrize("rollback", ["works", "fails"])
async def test_failed_append_is_taken_back(
    store: FileStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    fault: Callable[..., None],
    advice: str,
    rollback: str,
) -> None:
    run = await owned(store)
    (path,) = tmp_path.glob("*.journal")
    size = path.stat().st_size
    update = change_run(run, message="at last")
    with monkeypatch.context() as patch:
        patch.setattr(journal, name, fault)
        if rollback == "fails":
            patch.setattr(os, "ftruncate", broken)
        with pytest.raises(StoreUnavailable, match=advice) as unavailable:
            await store.update_run(update)
        assert str(path) in str(unavailable.value)
    if rollback == "works":
        assert path.stat().st_size == size
        assert (await store.get_run(run.run_id)).version == 1
    assert (await store.update_run(update)).version == 2
    assert (await FileStore(tmp_path).get_run(run.run_id)).message == "at last"


async def test_after_a_failed_sync_the_file_is_read_again(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that failed once may have lost more than the last write."""
    run = await then(store, change_run(await owned(store), message="kept"))
    with monkeypatch.context() as patch:
        patch.setattr(journal, "sync", broken)
        with pytest.raises(StoreUnavailable):
            await store.update_run(change_run(run, message="lost"))
    (path,) = tmp_path.glob("*.journal")
    path.write_bytes(path.read_bytes().replace(b"deploy", b"d\0ploy"))
    with pytest.raises(StoreIncompatible):
        await store.get_run(run.run_id)


@pytest.mark.parametrize(
    ("where", "fault"),
    [("birth.write_all", no_space), ("birth.sync", broken), ("runs.sync_directory", broken)],
)
async def test_failed_creation_leaves_nothing(
    store: FileStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    fault: Callable[..., None],
) -> None:
    new = embedded_run(run_id="second-try")
    with monkeypatch.context() as patch:
        patch.setattr(f"tenure.stores.file.{where}", fault)
        with pytest.raises(StoreUnavailable):
            await store.create_run(new)
        assert files(tmp_path) == []
    with pytest.raises(RunNotFound):
        await store.get_run("second-try")
    assert (await store.create_run(new)).version == 1
    assert await store.is_live("second-try")


async def test_nothing_is_acknowledged_before_it_is_synced(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a repetition: who wrote it first may have died before it was durable."""
    synced: list[tuple[str, int]] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{fd}"), os.fstat(fd).st_size))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    new = embedded_run(run_id="synced-run")
    await store.create_run(new)
    (path,) = tmp_path.glob("*.journal")
    born = (str(path), path.stat().st_size)
    directory = (str(tmp_path), tmp_path.stat().st_size)
    assert synced[0][0].endswith(".tmp")
    assert synced[0][1] == born[1]
    assert synced[1] == directory
    synced.clear()
    await store.create_run(new)
    assert synced == [born, directory]
    synced.clear()
    update = change_run(await store.get_run("synced-run"), message="changed")
    await store.update_run(update)
    grown = (str(path), path.stat().st_size)
    assert synced == [grown]
    await store.update_run(update)
    assert synced == [grown, grown]


async def test_new_store_is_as_durable_as_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else all of it may be gone after a power failure, whatever was synced in it."""
    synced: list[str] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    await FileStore(tmp_path / "new").close()
    assert synced == [str(tmp_path)]
    await FileStore(tmp_path / "new").close()
    assert synced == [str(tmp_path)]


async def test_missing_directory_is_not_an_empty_store(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "gone")
    await store.create_run(new_run(run_id="lost-with-it"))
    for path in (tmp_path / "gone").iterdir():
        path.unlink()
    (tmp_path / "gone").rmdir()
    with pytest.raises(StoreUnavailable, match="directory"):
        await store.get_run("lost-with-it")
    with pytest.raises(StoreUnavailable, match="directory"):
        await store.create_run(new_run())
    with pytest.raises(StoreUnavailable, match="directory"):
        await store.list_runs()
    await store.close()


async def test_directory_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="file/runs"):
        FileStore(tmp_path / "file" / "runs")


async def test_closed_store_says_so(store: FileStore) -> None:
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.list_runs()


async def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    open_before = set(disk._open)
    store = FileStore(tmp_path)
    run = await whole_life(store, "closed-after-use")
    assert run.status == RunStatus.SUCCESS
    with pytest.raises(RunNotFound):
        await store.get_run("never-created")
    await owned(store)
    await store.close()
    assert set(disk._open) == open_before
