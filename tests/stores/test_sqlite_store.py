"""What is SQLite's own: opening, refusing, remembering, waiting, closing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from tenure.model.errors import (
    LeaseLost,
    RunNotFound,
    StoreError,
    StoreIncompatible,
    StoreRejected,
    StoreUnavailable,
    TenureError,
    UnknownStore,
    VersionConflict,
)
from tenure.model.outbox import GiveUp
from tenure.model.query import RunFilter
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import HostStatus, RunStatus
from tenure.model.update import Changes, Event, Fencing, HostChange, NewDelivery, StepChange
from tenure.ports.store import LogKey
from tenure.stores.sqlite import SQLiteStore
from tenure.stores.sqlite.connection import migrations, refuse_wal_reset_bug
from tenure.testing.clock import ManualClock
from tenure.testing.factories import (
    HOOK,
    annotate,
    change_run,
    claim_request,
    embedded_run,
    end_run,
    finish_step,
    new_run,
    owner_update,
    start_step,
)


async def opened(store: SQLiteStore, owner: str = "owner-a", **fields: Any) -> RunSnapshot:
    new = embedded_run(owner, **fields)
    await store.create_run(new)
    return await store.get_run(new.snapshot.run_id)


# Opening


@pytest.mark.parametrize("version", ["3.7.0", "3.40.1", "3.51.2", "3.50.6", "3.44.5"])
def test_sqlite_with_the_wal_reset_bug_is_refused(version: str) -> None:
    with pytest.raises(StoreIncompatible, match="WAL-reset bug"):
        refuse_wal_reset_bug(version)


async def test_no_file_is_opened_with_such_a_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refuse_wal_reset_bug, "__defaults__", ("3.51.2",))
    with pytest.raises(StoreIncompatible, match="WAL-reset bug"):
        await SQLiteStore.open(tmp_path / "runs.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", ["3.51.3", "3.53.0", "3.54.1", "3.50.7", "3.44.6", "4.0.0"])
def test_fixed_sqlite_is_accepted(version: str) -> None:
    refuse_wal_reset_bug(version)


@pytest.mark.parametrize(
    ("name", "said"), [("x\udcffy.db", "is not UTF-8.*rename it"), ("x\0y.db", "a null byte")]
)
def test_path_that_sqlite_cannot_be_told_is_refused(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(UnknownStore, match=said):
        SQLiteStore(tmp_path / name)


async def test_full_disk_is_called_that(tmp_path: Path) -> None:
    """By a limit of SQLite's own, which ends in the same error on every machine."""
    path = tmp_path / "runs.db"
    async with await SQLiteStore.open(path) as store:
        await store._writer.run(store._writer.connection.pragma, "max_page_count", 1)
        with pytest.raises(StoreUnavailable) as refused:
            await store.create_run(new_run(definition="x" * 100_000))
        assert str(refused.value) == (
            f"no space left for {path}: nothing was written; free some and try again"
        )
        assert (await store.list_runs()).items == ()


async def test_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await (await SQLiteStore.open(path)).close()
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 9999)
    connection.close()
    with pytest.raises(StoreIncompatible, match=r"schema 9999.*upgrade Tenure") as refused:
        await SQLiteStore.open(path)
    assert refused.value.__traceback__ is not None  # with all that was at hand when it was raised
    assert list(tmp_path.iterdir()) == [path]  # the last who closes it removes the others
    assert apsw.Connection(str(path)).pragma("user_version") == 9999


async def test_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    connection = apsw.Connection(str(path))
    connection.execute("create table songs (title)")
    connection.close()
    with pytest.raises(StoreIncompatible, match="another program"):
        await SQLiteStore.open(path)


async def test_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Dear diary, " * 100)
    with pytest.raises(StoreIncompatible, match=r"notes\.txt"):
        await SQLiteStore.open(path)


async def test_unwritable_place_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(StoreUnavailable, match=r"cannot open .*runs\.db"):
        await SQLiteStore.open(blocked / "runs.db")


@pytest.mark.parametrize("attempt", range(5))
async def test_ten_stores_that_open_a_new_file_at_once_all_succeed(
    tmp_path: Path, attempt: int
) -> None:
    path = tmp_path / f"runs{attempt}.db"
    stores = await asyncio.gather(*(SQLiteStore.open(path) for _ in range(10)))
    for number, store in enumerate(stores):
        await store.create_run(new_run(run_id=f"of-store-{number}"))
    assert len((await stores[0].list_runs()).items) == 10
    await asyncio.gather(*(store.close() for store in stores))


async def test_migrations_are_numbered_without_gaps() -> None:
    assert [number for number, _ in migrations()] == list(range(1, len(migrations()) + 1))


async def test_commits_are_flushed_and_shared(tmp_path: Path) -> None:
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        writer = store._writer.connection
        assert (writer.pragma("journal_mode"), writer.pragma("synchronous")) == ("wal", 2)


# Closing


async def test_closed_store_says_so(tmp_path: Path) -> None:
    store = await SQLiteStore.open(tmp_path / "runs.db")
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.get_run("whatever1")


async def test_closing_waits_for_what_was_asked(tmp_path: Path) -> None:
    store = await SQLiteStore.open(tmp_path / "runs.db")
    writes = [asyncio.ensure_future(store.create_run(new_run())) for _ in range(50)]
    await asyncio.wait(writes, return_when=asyncio.FIRST_COMPLETED)
    await store.close()
    assert {(await write).version for write in writes} == {1}


async def test_cancelled_caller_leaves_no_half_write(tmp_path: Path) -> None:
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        new = new_run()
        write = asyncio.ensure_future(store.create_run(new))
        await asyncio.wait([write], timeout=0)
        write.cancel()
        with pytest.raises(asyncio.CancelledError):
            await write
        assert (await store.create_run(new)).version == 1
        assert (await store.get_run(new.snapshot.run_id)).version == 1


async def test_an_error_that_ends_a_transaction_ends_no_later_read(tmp_path: Path) -> None:
    """SQLite rolls a transaction back over some errors."""
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        run = await opened(store)

        def broken() -> None:
            store._reader.connection.execute("rollback")
            raise apsw.IOError("disk I/O error")

        with pytest.raises(StoreError, match="disk I/O error"):
            await store._reader.run(broken)
        assert await store._reader.run(lambda: store._reader.connection.in_transaction)
        assert await store.get_run(run.run_id) == run


async def test_callers_of_two_event_loops_are_each_answered_in_their_own(tmp_path: Path) -> None:
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        run = await opened(store)
        there = asyncio.to_thread(lambda: asyncio.run(store.get_run(run.run_id)))
        assert list(await asyncio.gather(store.get_run(run.run_id), there)) == [run, run]


# Remembering what was written last: never in the way of what others write


async def test_two_stores_write_the_same_run_in_turns(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with await SQLiteStore.open(path) as one, await SQLiteStore.open(path) as other:
        run = await opened(one)
        for number, store in enumerate((one, other, other, one, one, other)):
            await store.update_run(annotate(run, number=number))
            await store.update_run(change_run(await store.get_run(run.run_id), message="mine"))
        await one.update_run(start_step(await one.get_run(run.run_id), 0))
        await other.update_run(finish_step(await other.get_run(run.run_id), 0))
        await one.update_run(start_step(await one.get_run(run.run_id), 1))
        seen = await other.get_run(run.run_id)
        assert [step.status for step in seen.steps] == ["success", "running"]
        assert seen == await one.get_run(run.run_id)


async def test_stale_memory_is_never_written(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with await SQLiteStore.open(path) as one, await SQLiteStore.open(path) as other:
        run = await opened(one)
        await other.update_run(annotate(run, by="other"))
        with pytest.raises(VersionConflict):
            await one.update_run(change_run(run, message="from an older version"))
        seen = await one.get_run(run.run_id)
        await one.update_run(change_run(seen, message="rebased"))
        assert len((await one.get_run(run.run_id)).annotations) == 1


async def test_owner_replaced_through_another_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with await SQLiteStore.open(path) as one, await SQLiteStore.open(path) as other:
        run = await opened(one)
        ended = Fencing(run.owner_id or "", run.fence)
        await other.release_lease(run.run_id, ended, "release-1")
        with pytest.raises(LeaseLost):
            await one.update_run(change_run(await one.get_run(run.run_id), message="still me"))


async def test_host_that_no_step_plans_is_refused(tmp_path: Path) -> None:
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        run = await opened(store)
        stranger = {"nohost": HostChange(status=HostStatus.RUNNING)}
        step = StepChange(status="running", hosts=stranger)  # type: ignore[arg-type]
        with pytest.raises(StoreError, match="does not plan host 'nohost'"):
            await store.update_run(owner_update(run, Changes(steps={0: step})))


async def test_refused_write_leaves_memory_and_record_alike(tmp_path: Path) -> None:
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        run = await opened(store)
        await store.update_run(start_step(run, 0))
        now = await store.get_run(run.run_id)
        with pytest.raises(StoreError):
            await store.update_run(end_run(now, RunStatus.SUCCESS))
        assert (await store.update_run(finish_step(now, 0))).version == now.version + 1


async def test_rolled_back_write_is_not_remembered(tmp_path: Path) -> None:
    """A callback id that is taken shows only when the rows are written, after all was judged."""
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        taken = await opened(store, callbacks=(HOOK,))
        run = await opened(store, "owner-b", callbacks=(HOOK,))
        good = change_run(run, message="on its way")
        (used,) = (await store.list_deliveries(run_id=taken.run_id)).items
        event = Event(type="run.progress")
        bad = replace(
            good,
            update_id="bad",
            effect=replace(
                good.effect,
                events=(event,),
                deliveries=(NewDelivery(id=used.id, target="hook", seq=0),),
            ),
        )
        with pytest.raises(StoreRejected):
            await store.update_run(bad)
        note = change_run(taken, message="healthy")
        rejected, accepted = await store.update_runs([bad, note])
        assert isinstance(rejected, StoreRejected)
        assert not isinstance(accepted, TenureError)
        assert await store.get_run(run.run_id) == run
        assert (await store.update_run(good)).version == run.version + 1


async def test_dead_letter_settled_through_another_store_is_not_overwritten(
    tmp_path: Path,
) -> None:
    """It changes the run's row without a new version."""
    path = tmp_path / "runs.db"
    async with await SQLiteStore.open(path) as one, await SQLiteStore.open(path) as other:
        run = await opened(one, callbacks=(HOOK,))
        await one.update_run(change_run(run, message="first"))
        (delivery,) = await other.claim_deliveries("relay-1")
        await other.settle_delivery(delivery.id, "relay-1", GiveUp("410 Gone"))
        await one.update_run(change_run(await one.get_run(run.run_id), message="second"))
        error = (await other.get_run(run.run_id)).callback_error
        assert error is not None
        assert error.error == "410 Gone"


async def test_creation_times_never_fall(tmp_path: Path) -> None:
    """Lists bounded by time are bounded by number: the two orders must agree."""
    clock = ManualClock()
    async with await SQLiteStore.open(tmp_path / "runs.db", clock=clock) as store:
        before = clock.now()
        await store.create_run(new_run(run_id="the-first"))
        clock.set_wall(before - timedelta(days=3))
        await store.create_run(new_run(run_id="the-second"))
        listed = (await store.list_runs(RunFilter(created_from=before))).items
        assert [run.run_id for run in listed] == ["the-second", "the-first"]
        assert [run.created_at for run in listed] == [before, before]
        assert (await store.list_runs(RunFilter(created_to=before))).items == ()


@pytest.mark.parametrize("boot_id", ["a-lower-boot", "zz-a-higher-boot"])
async def test_lease_of_another_boot_has_ended_however_boots_are_named(
    tmp_path: Path, boot_id: str
) -> None:
    clock = ManualClock()
    async with await SQLiteStore.open(tmp_path / "runs.db", clock=clock) as store:
        await store.create_run(new_run(run_id="left-behind"))
        await store.claim_runs(claim_request("worker-1"))
        store._writer.connection.execute("update runs set lease_boot = ?", (boot_id,))
        taken = await store.claim_runs(claim_request("worker-2"))
        assert [one.snapshot.run_id for one in taken] == ["left-behind"]


async def test_every_tenth_claim_is_the_oldest_whoever_claims(tmp_path: Path) -> None:
    """Workers that claim a few runs each must not starve the old ones between them."""
    path = tmp_path / "runs.db"
    async with await SQLiteStore.open(path) as store:
        await store.create_run(new_run(run_id="old-and-unimportant", priority=-100))
        for _ in range(30):
            await store.create_run(new_run(priority=100))
    claimed: list[str] = []
    for number in range(5):
        async with await SQLiteStore.open(path) as worker:
            found = await worker.claim_runs(claim_request(f"worker-{number}", limit=3))
            claimed += [one.snapshot.run_id for one in found]
    assert claimed.index("old-and-unimportant") == 9


# Output


@pytest.mark.parametrize(
    "host", ["web1", "WEB1", "../../etc/passwd", "a/b", ".", "..", "ü" * 200, "x" * 5000]
)
async def test_any_host_name_has_its_own_output(tmp_path: Path, host: str) -> None:
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        run = await opened(store)
        fencing = Fencing(run.owner_id or "", run.fence)
        key = LogKey(step=0, host=host, stream="stdout")
        await store.append(run.run_id, fencing, key, 0, host.encode("utf-8", "replace"))
        assert (await store.read(run.run_id, key)).data == host.encode("utf-8", "replace")
    inside = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*")}
    assert inside <= {"runs.db", "runs.db.logs", "runs.db-wal", "runs.db-shm"}


# Questions nobody can answer


@pytest.mark.parametrize("run_id", ["\ud800" * 8, "never-created"])
async def test_unknown_ids_are_no_driver_error(tmp_path: Path, run_id: str) -> None:
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        with pytest.raises((RunNotFound, StoreError)):
            await store.get_run(run_id)
        with pytest.raises((RunNotFound, StoreError)):
            await store.get_definition(run_id)
