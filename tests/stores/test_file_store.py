"""The file store beyond its contract (``tests/contracts/test_file.py``): what files get wrong.

Killed writers and full disks: ``tests/system``.
"""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tenure.model.codec import encode
from tenure.model.errors import (
    LeaseHeld,
    RunExists,
    RunNotFound,
    StoreIncompatible,
    StoreUnavailable,
)
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.model.update import Changes, Position, Update
from tenure.ports.store import RunStateStore
from tenure.stores import file
from tenure.stores.file import SCHEMA, FileStore, frame, unframe
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
    operator_status,
    owner_update,
    planned_steps,
    start_step,
)

RUN_ID = "run-of-this-test"

OWNER = f"""
import asyncio, sys
from tenure.stores.file import FileStore
from tenure.testing.factories import embedded_run

store = FileStore(sys.argv[1])
asyncio.run(store.create_run(embedded_run("owner-elsewhere", run_id={RUN_ID!r})))
print("created", flush=True)
sys.stdin.read()
"""

LOCKING = """
import fcntl, os, sys

directory = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(directory, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FileStore]:
    async with FileStore(tmp_path) as store:
        yield store


@contextmanager
def program(text: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Once it has said that it is ready."""
    with subprocess.Popen(
        [sys.executable, "-c", text, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def owned(store: RunStateStore, **fields: Any) -> RunSnapshot:
    new = embedded_run(**fields)
    await store.create_run(new)
    return await store.get_run(new.snapshot.run_id)


async def then(store: RunStateStore, update: Update) -> RunSnapshot:
    await store.update_run(update)
    return await store.get_run(update.run_id)


async def whole_life(store: RunStateStore) -> RunSnapshot:
    """Every kind of write a run knows."""
    run = await owned(store, run_id=RUN_ID, definition="steps: []", vars={"release": "1.4"})
    run = await then(store, start_step(run))
    run = await then(store, finish_host(run, stdout="done\n", exit_code=0, vars={"x": [1, None]}))
    run = await then(store, cancel(run))
    run = await then(store, finish_step(run))
    run = await then(store, end_run(run))
    return await then(store, annotate(run, note_id="the-note", found="later"))


class TestKeeping:
    async def test_what_is_read_back_is_what_another_store_would_say(self, tmp_path: Path) -> None:
        """Replay, warm memory and the memory store agree to the last field."""
        clock, memory = ManualClock(), InMemoryStore(ManualClock())
        expected = await whole_life(memory)
        async with FileStore(tmp_path, clock) as warm, FileStore(tmp_path, clock) as cold:
            assert await whole_life(warm) == expected
            assert await cold.get_run(RUN_ID) == expected
            assert await cold.get_definition(RUN_ID) == "steps: []"
            assert await cold.read_events(RUN_ID) == await memory.read_events(RUN_ID)

    async def test_events_are_read_from_any_position(self, store: FileStore) -> None:
        run = await whole_life(store)
        told = await store.read_events(run.run_id)
        assert {event.version for event in told} == set(range(1, run.version + 1))
        for number, event in enumerate(told):
            assert await store.read_events(run.run_id, event.position) == told[number + 1 :]
        assert (
            await store.read_events(run.run_id, Position(2, 0), limit=2)
            == [event for event in told if event.position > (2, 0)][:2]
        )

    async def test_two_stores_on_one_directory_see_each_other(self, tmp_path: Path) -> None:
        async with FileStore(tmp_path) as one, FileStore(tmp_path) as other:
            run = await owned(one)
            for number in range(5):
                run = await then(other, change_run(run, message=f"by other {number}"))
                assert record_of(await one.get_run(run.run_id)) == record_of(run)
                run = await then(one, change_run(run, message=f"by one {number}"))
                assert (await other.list_runs()).items[0].message == f"by one {number}"
        assert run.version == 11

    async def test_writers_of_two_stores_never_share_a_base(self, tmp_path: Path) -> None:
        stores = [FileStore(tmp_path) for _ in range(3)]
        run = await owned(stores[0])
        receipts = await asyncio.gather(
            *(stores[number % 3].update_run(annotate(run, number=number)) for number in range(30))
        )
        assert sorted(receipt.version for receipt in receipts) == list(range(2, 32))
        for store in stores:
            await store.close()

    async def test_update_costs_what_it_changes(self, store: FileStore, tmp_path: Path) -> None:
        hosts = tuple(f"host-{number}" for number in range(2000))
        run = await owned(store, steps=planned_steps(1, hosts))
        run = await then(store, start_step(run, 0, hosts[:3]))
        (path,) = tmp_path.glob("*.journal")
        before = path.stat().st_size
        await store.update_run(finish_host(run, 0, hosts[0]))
        assert path.stat().st_size - before < 1000

    async def test_what_is_forgotten_is_read_again(
        self, store: FileStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(file, "MAX_REPLAYED_RUNS", 2)
        made = [await owned(store) for _ in range(5)]
        for run in made:
            assert (await then(store, change_run(run, message="still there"))).version == 2
        assert {run.version for run in (await store.list_runs()).items} == {2}

    async def test_list_shows_what_was_said_of_a_run_after_its_end(self, tmp_path: Path) -> None:
        async with FileStore(tmp_path) as store, FileStore(tmp_path) as other:
            run = await then(store, end_run(await owned(store)))
            for version in (3, 4):
                await other.update_run(annotate(run, number=version))
                assert [run.version for run in (await store.list_runs()).items] == [version]

    async def test_files_of_others_are_left_alone(self, store: FileStore, tmp_path: Path) -> None:
        strangers = ["notes.journal", "read.me", "run-000001.00000000.journal", "x.live"]
        for name in strangers:
            (tmp_path / name).write_text("not ours")
        await store.create_run(new_run())
        assert len((await store.list_runs()).items) == 1
        assert set(strangers) <= set(files(tmp_path))

    async def test_its_user_alone_may_read_them(self, tmp_path: Path) -> None:
        directory = tmp_path / "runs"
        async with FileStore(directory) as store:
            await store.create_run(embedded_run())
        assert directory.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}


class TestLiveRuns:
    async def test_run_lives_as_long_as_its_process(self, tmp_path: Path) -> None:
        with program(OWNER, tmp_path) as owner:
            async with FileStore(tmp_path) as store:
                assert await store.is_live(RUN_ID)
                run = await store.get_run(RUN_ID)
                assert not run.owner_lost
                assert not (await store.list_runs()).items[0].owner_lost
                with pytest.raises(LeaseHeld):
                    await store.update_run(operator_status(run, RunStatus.INTERRUPTED))
                await store.update_run(cancel(run))
                asked = await store.get_run(RUN_ID)
                assert (asked.status, asked.cancel_reason) == (RunStatus.RUNNING, "stop it")

                owner.kill()
                owner.wait()
                assert not await store.is_live(RUN_ID)
                run = await store.get_run(RUN_ID)
                assert (run.owner_lost, run.lease_expires_at) == (True, None)
                assert (await store.list_runs()).items[0].owner_lost
                await store.update_run(operator_status(run, RunStatus.INTERRUPTED))
                assert (await store.get_run(RUN_ID)).fence == run.fence + 1

    async def test_cancel_of_a_dead_run_ends_it(self, tmp_path: Path) -> None:
        with program(OWNER, tmp_path) as owner:
            owner.kill()
            owner.wait()
        async with FileStore(tmp_path) as store:
            await store.update_run(cancel(await store.get_run(RUN_ID)))
            assert (await store.get_run(RUN_ID)).status == RunStatus.CANCELED

    async def test_looking_neither_takes_nor_frees_the_lock(self, tmp_path: Path) -> None:
        owner, other, third = FileStore(tmp_path), FileStore(tmp_path), FileStore(tmp_path)
        run = await owned(owner)
        for store in (owner, other, other, owner, other):
            assert await store.is_live(run.run_id)
        await other.close()
        assert await third.is_live(run.run_id)
        await owner.close()
        assert not await third.is_live(run.run_id)
        await third.close()

    @pytest.mark.parametrize("through", ["its own store", "another store"])
    @pytest.mark.parametrize("how", ["ended", "released"])
    async def test_lock_goes_with_the_owner(self, tmp_path: Path, how: str, through: str) -> None:
        async with FileStore(tmp_path) as store, FileStore(tmp_path) as other:
            run = await owned(store)
            last = end_run(run) if how == "ended" else owner_update(run, Changes(), release=True)
            await (store if through == "its own store" else other).update_run(last)
            assert not await store.is_live(run.run_id)
            assert not await other.is_live(run.run_id)

    async def test_run_without_an_owner_is_not_live(self, store: FileStore) -> None:
        await store.create_run(new_run(run_id=RUN_ID))
        assert not await store.is_live(RUN_ID)
        with pytest.raises(RunNotFound):
            await store.is_live("never-created")


class TestTheDirectory:
    async def test_another_process_that_locks_it_for_long_is_told_of(
        self, store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Reading goes on; writing does so when the lock is free."""
        run = await owned(store)
        monkeypatch.setattr(file, "LOCK_TIMEOUT_S", 0.1)
        with program(LOCKING, tmp_path) as other:
            with pytest.raises(StoreUnavailable, match=f"{tmp_path} has been locked by another"):
                await store.update_run(change_run(run, message="too early"))
            assert (await store.get_run(run.run_id)).version == 1
            assert len((await store.list_runs()).items) == 1
            monkeypatch.setattr(file, "LOCK_TIMEOUT_S", 60.0)
            later = asyncio.create_task(store.update_run(change_run(run, message="later")))
            other.kill()
            assert (await later).version == 2

    async def test_that_is_gone_is_no_empty_store(self, tmp_path: Path) -> None:
        async with FileStore(tmp_path / "gone") as store:
            run = await owned(store)
            for path in (tmp_path / "gone").iterdir():
                path.unlink()
            (tmp_path / "gone").rmdir()
            for asked in (
                store.get_run(run.run_id),
                store.create_run(new_run()),
                store.list_runs(),
            ):
                with pytest.raises(StoreUnavailable, match="gone"):
                    await asked

    async def test_new_one_is_as_durable_as_its_runs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced = noted_syncs(monkeypatch)
        await FileStore(tmp_path / "new").close()
        assert [path for path, _ in synced] == [str(tmp_path)]
        await FileStore(tmp_path / "new").close()
        assert len(synced) == 1

    async def test_closed_store_says_so(self, store: FileStore) -> None:
        await store.close()
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.list_runs()

    async def test_no_descriptor_stays_open(self, tmp_path: Path) -> None:
        def opened() -> set[str]:
            paths = {os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()}
            return {path for path in paths if path.startswith(str(tmp_path))}

        async with FileStore(tmp_path) as store:
            assert (await whole_life(store)).status == RunStatus.SUCCESS
            with pytest.raises(RunNotFound):
                await store.get_run("never-created")
            assert opened() == set()
            run = await owned(store)
            assert [run.run_id in path for path in opened()] == [True]
        assert opened() == set()


# When the disk fails


def broken(*_: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def no_space(fd: int, data: bytes, offset: int, pwrite: Callable[..., int] = os.pwrite) -> int:
    """A part arrives, then the disk is full."""
    pwrite(fd, bytes(data[: len(data) // 2]), offset)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def noted_syncs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What is synced from now on, and how large it was."""
    synced: list[tuple[str, int]] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{fd}"), os.fstat(fd).st_size))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    return synced


class TestDiskThatFails:
    @pytest.mark.parametrize(
        ("name", "fault", "advice"),
        [("pwrite", no_space, "free some space"), ("fsync", broken, "look at the path and the")],
    )
    @pytest.mark.parametrize("rollback", ["works", "fails"])
    async def test_failed_append_is_taken_back(
        self,
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
        size, ftruncate = path.stat().st_size, os.ftruncate
        cut_to: list[int] = []
        update = change_run(run, message="at last")

        def only_once(fd: int, length: int) -> None:
            if length in cut_to:
                broken()
            cut_to.append(length)
            ftruncate(fd, length)

        with monkeypatch.context() as patch:
            patch.setattr(os, name, fault)
            if rollback == "fails":
                patch.setattr(os, "ftruncate", only_once)
            with pytest.raises(StoreUnavailable, match=advice) as unavailable:
                await store.update_run(update)
            assert str(path) in str(unavailable.value)
        if rollback == "works":
            assert path.stat().st_size == size
            assert (await store.get_run(run.run_id)).version == 1
        assert (await store.update_run(update)).version == 2
        async with FileStore(tmp_path) as cold:
            assert (await cold.get_run(run.run_id)).message == "at last"

    @pytest.mark.parametrize(("name", "fault"), [("pwrite", no_space), ("fsync", broken)])
    async def test_failed_creation_leaves_nothing(
        self,
        store: FileStore,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        name: str,
        fault: Callable[..., None],
    ) -> None:
        new = embedded_run(run_id=RUN_ID)
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fault)
            with pytest.raises(StoreUnavailable):
                await store.create_run(new)
        assert files(tmp_path) == []
        with pytest.raises(RunNotFound):
            await store.get_run(RUN_ID)
        assert (await store.create_run(new)).version == 1
        assert await store.is_live(RUN_ID)

    async def test_nothing_is_acknowledged_before_it_is_synced(
        self, store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also a repetition: its first writer may have died before it was durable."""
        synced = noted_syncs(monkeypatch)
        new = embedded_run(run_id=RUN_ID)
        await store.create_run(new)
        (path,) = tmp_path.glob("*.journal")
        born = [(str(path), path.stat().st_size), (str(tmp_path), tmp_path.stat().st_size)]
        assert synced == born
        await store.create_run(new)
        assert synced == born * 2
        synced.clear()
        update = change_run(await store.get_run(RUN_ID), message="changed")
        await store.update_run(update)
        grown = (str(path), path.stat().st_size)
        assert synced == [grown]
        await store.update_run(update)
        assert synced == [grown, grown]


class Journal(NamedTuple):
    path: Path
    content: bytes
    starts: list[int]
    """Of its lines; the last one is the end."""


@pytest.fixture
async def journal(tmp_path: Path) -> Journal:
    """Four lines: a creation and three annotations."""
    async with FileStore(tmp_path) as store:
        new = new_run(run_id=RUN_ID)
        await store.create_run(new)
        (path,) = tmp_path.glob("*.journal")
        starts = [0, path.stat().st_size]
        for number in range(3):
            await store.update_run(annotate(new.snapshot, number=number))
            starts.append(path.stat().st_size)
    return Journal(path, path.read_bytes(), starts)


async def version_found(path: Path) -> int:
    async with FileStore(path.parent) as store:
        (listed,) = (await store.list_runs()).items
        run = await store.get_run(RUN_ID)
        assert listed.version == run.version == len(run.annotations) + 1
        events = await store.read_events(RUN_ID)
        assert {event.version for event in events} == set(range(1, run.version + 1))
        return run.version


async def write_one_more(path: Path) -> int:
    async with FileStore(path.parent) as store:
        note = annotate(new_run(run_id=RUN_ID).snapshot, goes="on")
        return (await store.update_run(note)).version


def flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 0x5A]) + content[position + 1 :]


@pytest.mark.slow
class TestDamage:
    async def test_write_cut_short_at_any_byte_never_happened(self, journal: Journal) -> None:
        path, content, starts = journal
        for cut in range(starts[3], starts[4]):
            path.write_bytes(content[:cut])
            assert await version_found(path) == 3, f"cut at {cut}"
            assert path.stat().st_size == cut, "a reader changes nothing"
            assert await write_one_more(path) == 4
            assert await version_found(path) == 4
            assert path.read_bytes()[: starts[3]] == content[: starts[3]]
            assert all(map(unframe, path.read_bytes().split(b"\n")[:-1])), "no rest remains"

    @pytest.mark.parametrize("rest", [b"\0" * 5000, b"garbage"])
    async def test_rest_that_is_no_line_is_passed_over_and_cut_off(
        self, journal: Journal, rest: bytes
    ) -> None:
        path, content, _ = journal
        path.write_bytes(content + rest)
        assert await version_found(path) == 4
        assert await write_one_more(path) == 5
        assert path.read_bytes().startswith(content)
        assert await version_found(path) == 5
        assert len(path.read_bytes().split(b"\n")) == 6

    async def test_creation_cut_short_at_any_byte_never_happened(self, journal: Journal) -> None:
        path, content, starts = journal
        for cut in range(0, starts[1], 7):
            path.write_bytes(content[:cut])
            async with FileStore(path.parent) as store:
                assert (await store.list_runs()).items == ()
                with pytest.raises(RunNotFound):
                    await store.get_run(RUN_ID)
                await store.create_run(new_run(run_id=RUN_ID))
            assert await version_found(path) == 1

    async def test_line_damaged_at_any_byte_is_named(self, journal: Journal) -> None:
        """But for the very last byte: a line without an end was never acknowledged."""
        path, content, starts = journal
        for spoiled in range(starts[4] - 1):
            path.write_bytes(flipped(content, spoiled))
            start = max(start for start in starts if start <= spoiled)
            async with FileStore(path.parent) as store:
                with pytest.raises(StoreIncompatible, match="damaged") as damage:
                    await store.get_run(RUN_ID)
            assert f"{path}, byte {start}:" in str(damage.value)

    async def test_missing_line_is_named(self, journal: Journal) -> None:
        path, content, starts = journal
        path.write_bytes(content[: starts[1]] + content[starts[2] :])
        async with FileStore(path.parent) as store:
            with pytest.raises(StoreIncompatible, match=f"byte {starts[1]}: says version 3"):
                await store.get_run(RUN_ID)

    async def test_damaged_file_is_neither_written_nor_created_over(self, journal: Journal) -> None:
        path, content, _ = journal
        damaged = flipped(content, 40)
        path.write_bytes(damaged)
        async with FileStore(path.parent) as store:
            with pytest.raises(StoreIncompatible):
                await store.update_run(annotate(new_run(run_id=RUN_ID).snapshot, note=1))
            with pytest.raises((StoreIncompatible, RunExists)):
                await store.create_run(embedded_run(run_id=RUN_ID))
            with pytest.raises(StoreIncompatible, match="move it away"):
                await store.get_run(RUN_ID)
            assert path.read_bytes() == damaged
            path.rename(path.with_suffix(".damaged"))
            assert (await store.list_runs()).items == ()

    async def test_damaged_run_is_left_out_of_lists_with_one_warning(
        self, journal: Journal, caplog: pytest.LogCaptureFixture
    ) -> None:
        path, content, starts = journal
        async with FileStore(path.parent) as store:
            await store.create_run(new_run(run_id="sound-run"))
            path.write_bytes(flipped(content, starts[1] + 40))
            for _ in range(3):
                assert [run.run_id for run in (await store.list_runs()).items] == ["sound-run"]
            (said,) = caplog.messages
            assert said.startswith(f"run {RUN_ID} is left out of all lists: {path}, byte ")
            assert "Restore the file from a backup" in said
            path.write_bytes(content)
            assert len((await store.list_runs()).items) == 2

    async def test_file_restored_from_a_backup_is_read_anew(self, journal: Journal) -> None:
        path, content, starts = journal
        async with FileStore(path.parent) as store:
            assert (await store.get_run(RUN_ID)).version == 4
            path.unlink()
            path.write_bytes(content[: starts[2]])
            assert (await store.get_run(RUN_ID)).version == 2

    @pytest.mark.parametrize(
        "foreign",
        [{"schema": SCHEMA + 1, "surprise": True}, {"hello": "world"}, {"schema": "one"}],
    )
    async def test_line_of_a_newer_version_is_refused(
        self, journal: Journal, foreign: dict[str, object]
    ) -> None:
        path, content, starts = journal
        path.write_bytes(content + frame(encode(foreign)))
        async with FileStore(path.parent) as store:
            with pytest.raises(StoreIncompatible, match="upgrade Tenure") as refused:
                await store.get_run(RUN_ID)
            assert f"{path}, byte {starts[4]}" in str(refused.value)
            with pytest.raises(StoreIncompatible):
                await store.update_run(annotate(new_run(run_id=RUN_ID).snapshot, note=1))
        assert path.read_bytes().startswith(content)

    async def test_journal_of_another_run_is_refused(self, journal: Journal) -> None:
        path, content, _ = journal
        async with FileStore(path.parent) as store:
            await store.create_run(new_run(run_id="other-run"))
        (other,) = path.parent.glob("other-run.*")
        other.write_bytes(content)
        async with FileStore(path.parent) as store:
            with pytest.raises(StoreIncompatible, match=f"belongs to run '{RUN_ID}'"):
                await store.get_run("other-run")
