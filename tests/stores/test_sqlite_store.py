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
from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import HostStatus, RunStatus, StepStatus
from tenure.model.update import Changes, Event, Fencing, HostChange, NewDelivery, StepChange
from tenure.ports.store import LogKey
from tenure.stores.sqlite import SQLiteStore
from tenure.stores.sqlite.database import migrations, refuse_wal_reset_bug
from tenure.stores.sqlite.statements import SQL, load
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
from tests.stores.query_plans import no_values, plan_of


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


@pytest.mark.parametrize("attempt", range(3))
async def test_so_do_twenty_that_open_one_nobody_had_open(tmp_path: Path, attempt: int) -> None:
    path = tmp_path / f"runs{attempt}.db"
    await (await SQLiteStore.open(path)).close()
    stores = await asyncio.gather(*(SQLiteStore.open(path) for _ in range(20)))
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


async def test_refusal_of_one_call_costs_the_others_nothing(tmp_path: Path) -> None:
    """Nothing was written, so nothing need be forgotten."""
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        run = await opened(store)
        recent = store._writing.loading.recent
        kept = recent.get(run.run_id)
        assert kept is not None
        with pytest.raises(RunNotFound):
            await store.update_run(replace(change_run(run), run_id="never-created"))
        with pytest.raises(VersionConflict):
            await store.update_run(change_run(replace(run, version=99)))
        assert recent.get(run.run_id) is kept


async def test_memory_stays_bounded_by_its_weight(tmp_path: Path) -> None:
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        for number in range(5):
            run = await opened(store, f"owner-{number}")
            plan = StepState(index=2, name="more", hosts={f"h{n}": HostState() for n in range(50)})
            added = StepChange(status=StepStatus.RUNNING, plan=plan)
            await store.update_run(owner_update(run, Changes(steps={2: added})))
            await store.update_run(end_run(await store.get_run(run.run_id), RunStatus.FAILED))
        assert store._writing.loading.recent._weight == 0


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


# Statements


def test_every_statement_has_a_name_and_prepares(tmp_path: Path) -> None:
    assert load("-- name: one\n-- why\nselect 1\n\n-- name: two\nselect 2") == {
        "one": "select 1",
        "two": "select 2",
    }
    asyncio.run(_create(tmp_path / "runs.db"))
    connection = apsw.Connection(str(tmp_path / "runs.db"))
    for name, statement in SQL.items():
        explained = connection.execute(f"explain {statement}", no_values(statement))
        assert explained.fetchall(), name


async def _create(path: Path) -> None:
    await (await SQLiteStore.open(path)).close()


RUNNING, ENDED = frozenset({RunStatus.RUNNING}), frozenset({RunStatus.FAILED, RunStatus.SUCCESS})
BY_STATUS = "COVERING INDEX runs_by_status (status=? AND seq<?)"
BY_WORKFLOW = "COVERING INDEX runs_by_workflow (workflow_name=? AND status=? AND seq<?)"
BY_QUEUE = "COVERING INDEX runs_by_queue (queue=? AND status=? AND seq<?)"
BY_LABEL = "PRIMARY KEY (key=? AND value=? AND seq<?)"
BY_OWNER = "INDEX runs_by_owner (owner_id=?)"
HELD = "INDEX runs_by_owner (owner_id>?)"
UNAPPROVED = "INDEX runs_unapproved (seq<?)"


@pytest.mark.parametrize(
    ("where", "driver"),
    [
        (RunFilter(), "INTEGER PRIMARY KEY (rowid<?)"),
        (RunFilter(statuses=RUNNING), BY_STATUS),
        (RunFilter(statuses=ENDED), BY_STATUS),
        (RunFilter(workflow_name="deploy"), BY_WORKFLOW),
        (RunFilter(workflow_name="deploy", statuses=ENDED), BY_WORKFLOW),
        (RunFilter(queue="gpu"), BY_QUEUE),
        (RunFilter(queue="gpu", statuses=ENDED), BY_QUEUE),
        (RunFilter(labels={"team": "web", "env": "prod"}), BY_LABEL),
        (RunFilter(labels={"team": "web"}, queue="gpu"), BY_LABEL),
        (RunFilter(owner_id="owner-a"), BY_OWNER),
        (RunFilter(owner_id="owner-a", statuses=ENDED), BY_OWNER),
        (RunFilter(owner_id="owner-a", queue="gpu", workflow_name="deploy"), BY_OWNER),
        (RunFilter(owner_id="owner-a", labels={"team": "web"}), BY_OWNER),
        (RunFilter(held=True), HELD),
        (RunFilter(held=True, statuses=RUNNING, labels={"team": "web"}), HELD),
        (RunFilter(unapproved=True), UNAPPROVED),
        (RunFilter(unapproved=True, statuses=ENDED, queue="gpu"), UNAPPROVED),
    ],
)
async def test_lists_read_index_ranges_not_tables(
    tmp_path: Path, where: RunFilter, driver: str
) -> None:
    """A page must cost the same however long the history: the range is the one that is named, in
    the order of the page. (Runs with an owner are sorted; there are never many.)"""
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        asked: list[str] = []
        connection = store._reader.connection

        def note(_: object, sql: str, values: object) -> bool:
            if sql.startswith("select"):
                asked.append(sql)
            return True

        connection.exec_trace = note
        await store.list_runs(where)
        connection.exec_trace = None
    (sql,) = asked
    plan = plan_of(store.path, sql)
    ranges = [step for step in plan if step.startswith(("SEARCH r ", "SEARCH d ", "SCAN r "))]
    assert ranges
    assert all(driver in step for step in ranges if "rowid=?" not in step), plan
    merged = len(where.statuses or RunStatus) > 1 and "(subquery" in str(plan)
    assert "TEMP B-TREE" not in str(plan) or merged or where.owner_id or where.held, plan


def test_counting_runs_reads_an_index_and_no_table(tmp_path: Path) -> None:
    asyncio.run(_create(tmp_path / "runs.db"))
    (counted,) = (s for s in plan_of(tmp_path / "runs.db", SQL["runs_by_status"]) if " r " in s)
    assert counted == "SEARCH r USING COVERING INDEX runs_by_status (status=?)"


def test_versions_of_many_runs_are_found_by_their_ids(tmp_path: Path) -> None:
    asyncio.run(_create(tmp_path / "runs.db"))
    plan = plan_of(tmp_path / "runs.db", SQL["versions_by_id"])
    assert plan == [
        "SCAN each VIRTUAL TABLE INDEX 1:",
        "SEARCH r USING INDEX sqlite_autoindex_runs_1 (run_id=?)",
    ]


def test_relays_look_at_what_is_due_and_at_nothing_else(tmp_path: Path) -> None:
    """However many callbacks wait for their turn, their next attempt or a busy relay."""
    asyncio.run(_create(tmp_path / "runs.db"))
    origins = plan_of(tmp_path / "runs.db", SQL["origins_due"])
    assert [step for step in origins if "deliveries" in step] == [
        "SEARCH deliveries USING INDEX deliveries_due (origin>?)",
        "SEARCH deliveries USING INDEX deliveries_due (origin>?)",
    ]
    due = plan_of(tmp_path / "runs.db", SQL["hold_due_deliveries"])
    assert [step for step in due if step.startswith("SEARCH")] == [
        "SEARCH deliveries USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH d USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH f USING INDEX deliveries_due (origin=?)",
        "SEARCH e USING INDEX deliveries_in_order (seq=? AND target=?)",
    ]
    assert not [step for step in due if step.startswith(("SCAN d", "SCAN e", "SCAN f"))]
    for name in ("renew_held_deliveries", "held_deliveries"):
        plan = plan_of(tmp_path / "runs.db", SQL[name])
        (held,) = [step for step in plan if "deliveries" in step]
        assert "INDEX deliveries_held (token=?)" in held
    rests = plan_of(tmp_path / "runs.db", SQL["end_rests"])
    ranges = [step for step in rests if step.startswith(("SEARCH", "SCAN")) and "rowid" not in step]
    assert len(ranges) == 3
    assert all("COVERING INDEX deliveries_resting (rest_boot" in step for step in ranges), rests
