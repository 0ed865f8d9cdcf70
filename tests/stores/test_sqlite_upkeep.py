"""What a check finds, and that no damage is met with a driver's error."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import apsw
import pytest

from tenure.model.errors import StoreError, StoreIncompatible
from tenure.model.status import RunStatus
from tenure.ports.leases import WorkerInfo
from tenure.ports.store import LogKey, StoreReport
from tenure.stores.sqlite import SQLiteStore
from tenure.stores.sqlite.connection import newest_schema
from tenure.testing.contracts.acts import create, create_embedded, start_first_step
from tenure.testing.factories import (
    HOOK,
    cancel,
    claim_request,
    end_run,
    fencing_of,
    new_run,
)

pytestmark = pytest.mark.slow

OUT = LogKey(step=0, host="web1", stream="stdout")
PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    async with await SQLiteStore.open(path) as store:
        await _fill(store, 3)
        yield store


async def _fill(store: SQLiteStore, number: int) -> None:
    for _ in range(number):
        run = await create_embedded(
            store, labels={"team": "web"}, definition="name: deploy", callbacks=(HOOK,)
        )
        run = await start_first_step(store, run)
        await store.append(run.run_id, fencing_of(run), OUT, 0, b"hello")
        await store.update_run(end_run(run, RunStatus.FAILED))


def execute(path: Path, sql: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()


async def test_report_says_where_how_many_and_how_much(path: Path, store: SQLiteStore) -> None:
    before = await store.check_store()
    assert (before.place, before.runs, before.problems) == (str(path), 3, ())
    run = await create_embedded(store)
    await store.append(run.run_id, fencing_of(run), OUT, 0, b"x" * 1_000_000)
    after = await store.check_store()
    assert after.runs == 4
    assert before.bytes_used is not None
    assert after.bytes_used is not None
    assert after.bytes_used - before.bytes_used >= 1_000_000 > before.bytes_used > PAGE


@pytest.mark.parametrize(
    ("harm", "found"),
    [
        ("delete from run_specs where seq = 2", "lack what they were given: 1"),
        ("delete from journal where seq = 2 and version = 3", "not in the journal: 1"),
        ("delete from definitions", "workflow text is gone: 3"),
        ("delete from runs where seq < 3", "only parts are left: 2"),
    ],
)
async def test_rows_that_belong_together_are_together(
    path: Path, store: SQLiteStore, harm: str, found: str
) -> None:
    execute(path, harm)
    problems = (await store.check_store()).problems
    assert found in problems[0]
    assert "restore a backup" in problems[0]


async def test_schema_of_a_newer_tenure_is_reported_and_left_alone(
    path: Path, store: SQLiteStore
) -> None:
    """It came while this store was open."""
    execute(path, "pragma user_version = 9999")
    report = await store.check_store()
    assert report.schema == 9999
    assert "upgrade Tenure" in report.problems[0]
    with pytest.raises(StoreIncompatible, match=r"schema 9999.*upgrade Tenure"):
        await store.migrate_store()
    assert (await store.check_store()).schema == 9999


async def test_nothing_is_written_or_read_once_a_newer_tenure_has_migrated(
    path: Path, store: SQLiteStore
) -> None:
    """Whichever of the three threads is asked."""
    run = await create_embedded(store, "owner")
    await store.append(run.run_id, fencing_of(run), OUT, 0, b"hello")
    execute(path, "pragma user_version = 9999")
    asked: list[Callable[[], Awaitable[object]]] = [
        lambda: store.create_run(new_run()),
        lambda: store.update_runs([cancel(run)]),
        lambda: store.claim_runs(claim_request("worker")),
        lambda: store.renew_leases([], 60.0),
        lambda: store.settle_and_claim([], "token"),
        lambda: store.heartbeat(WorkerInfo(owner_id="worker"), 60.0),
        lambda: store.prune_runs(0.0),
        lambda: store._writer.run(store._pruner.noted),
        lambda: store.get_run(run.run_id),
        store.list_runs,
        store.check_ready,
        lambda: store.append(run.run_id, fencing_of(run), OUT, 5, b" world"),
        lambda: store.read(run.run_id, OUT),
        lambda: store.list_logs(run.run_id),
    ]
    for ask in asked:
        with pytest.raises(StoreIncompatible, match=r"runs\.db has schema 9999.*upgrade Tenure"):
            await ask()
    execute(path, f"pragma user_version = {newest_schema()}")
    assert await store.get_run(run.run_id) == run
    assert (await store.read(run.run_id, OUT)).data == b"hello"


async def test_outdated_schema_is_reported(path: Path, store: SQLiteStore) -> None:
    execute(path, "pragma user_version = 0")
    report = await store.check_store()
    assert report.problems == (f"The schema is 0, not {report.newest_schema}: migrate the store.",)


async def test_output_that_belongs_to_no_run_is_reported(path: Path, store: SQLiteStore) -> None:
    stray = Path(f"{path}.logs", "4711-a-run-of-another-database")
    stray.mkdir()
    (problem,) = (await store.check_store()).problems
    assert f"in 1 folders such as {stray}: delete them" in problem
    assert stray.exists()


async def test_output_that_cannot_be_looked_at_is_reported(path: Path) -> None:
    async with await SQLiteStore.open(path) as store:
        Path(f"{path}.logs").write_text("in the way")
        (problem,) = (await store.check_store()).problems
        assert f"The output in {path}.logs cannot be read" in problem


# Damage


async def test_damaged_index_is_reported_and_the_rest_still_read(path: Path) -> None:
    async with await SQLiteStore.open(path) as store:
        await _fill(store, 30)
    _overwrite(path, (_root_page(path, "runs_by_creation") + 1) * PAGE - 200, b"\xff" * 200)
    async with await SQLiteStore.open(path) as store:
        report = await store.check_store()
        assert len(report.problems) >= 1
        assert all("The file is damaged: " in problem for problem in report.problems)
        assert "keep a copy of the file, and restore a backup" in report.problems[0]
        assert len((await store.list_runs()).items) == 30


def _root_page(path: Path, name: str) -> int:
    """Counted from zero. Rows begin at its end."""
    connection = apsw.Connection(str(path))
    ((page,),) = connection.execute("select rootpage from sqlite_schema where name = ?", (name,))
    return int(page) - 1


async def test_text_that_is_none_is_named(path: Path, store: SQLiteStore) -> None:
    """SQLite does not look into texts; who reads one must not be met with a codec's error."""
    execute(path, "update journal set events = cast(x'5bff5d' as text) where seq = 1")
    (run, *_) = reversed((await store.list_runs()).items)
    with pytest.raises(StoreIncompatible, match=r"runs\.db is damaged"):
        await store.read_events(run.run_id)


async def test_file_overwritten_while_open_is_named(path: Path, store: SQLiteStore) -> None:
    store._writer.connection.execute("pragma wal_checkpoint(truncate)").fetchall()
    _overwrite(path, 0, b"Dear diary, " * 400)
    with pytest.raises(StoreIncompatible, match=r"runs\.db is damaged.*Restore a backup"):
        await store.check_store()


async def test_truncated_file_is_named(path: Path) -> None:
    async with await SQLiteStore.open(path) as store:
        await _fill(store, 30)
    with path.open("r+b") as file:
        file.truncate(10 * PAGE)
    outcome = await _look_at(path)
    told = str(outcome) if isinstance(outcome, StoreError) else outcome.problems[0]
    assert "damaged" in told


async def test_random_damage_ends_in_a_report_or_a_clear_error(path: Path) -> None:
    async with await SQLiteStore.open(path) as store:
        await _fill(store, 20)
        await create(store)
    sound = path.read_bytes()
    outcomes = []
    for seed in range(60):
        _damage(path, sound, random.Random(seed))
        outcomes.append(await _look_at(path))
    told = [one for one in outcomes if isinstance(one, StoreError) or one.problems]
    reports = [one for one in told if isinstance(one, StoreReport)]
    assert len(told) > 15
    assert 0 < len(reports) < len(told)
    assert {type(one) for one in told} == {StoreReport, StoreIncompatible}


async def _look_at(path: Path) -> StoreReport | StoreError:
    try:
        async with await SQLiteStore.open(path) as store:
            return await store.check_store()
    except StoreError as error:
        return error


def _damage(path: Path, sound: bytes, chance: random.Random) -> None:
    for name in (f"{path}-wal", f"{path}-shm"):
        Path(name).unlink(missing_ok=True)
    page = chance.choice((0, chance.randrange(len(sound) // PAGE)))
    where = page * PAGE + chance.choice((0, chance.randrange(PAGE)))
    harm = chance.randbytes(chance.choice((1, 8, 300)))
    path.write_bytes((sound[:where] + harm + sound[where + len(harm) :])[: len(sound)])


def _overwrite(path: Path, where: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(where)
        file.write(data)
