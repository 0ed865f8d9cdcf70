"""A database file that is taken away while it is open: noticed, and nothing is answered from it."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from tenure.model.errors import StoreLost, StoreUnavailable
from tenure.model.update import Fencing
from tenure.ports.log_store import LogKey
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.factories import cancel, embedded_run, lease_request, new_run, start_step
from tests.stores.unshared import unshared

pytestmark = pytest.mark.slow

RUN_ID = "order-1234"
OUT = LogKey(step=0, host="web1", stream="stdout")


def remove(path: Path) -> None:
    path.unlink()


def replace_it(path: Path) -> None:
    path.rename(path.with_suffix(".old"))
    path.touch()


def move_its_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


@pytest.mark.parametrize("take_away", [remove, replace_it, move_its_folder])
async def test_neither_writes_nor_reads_are_answered(
    tmp_path: Path, take_away: Callable[[Path], None]
) -> None:
    path = tmp_path / "here" / "runs.db"
    path.parent.mkdir()
    async with await SQLiteStore.open(path) as store:
        await store.create_run(embedded_run("owner", run_id=RUN_ID))
        run = await store.get_run(RUN_ID)
        take_away(path)
        asked: list[Callable[[], Awaitable[object]]] = [
            lambda: store.update_run(start_step(run)),
            lambda: store.update_runs([new_run()]),
            lambda: store.renew_leases([], 60),
            lambda: store.get_run(RUN_ID),
            store.list_runs,
        ]
        for ask in asked:
            with pytest.raises(StoreLost, match=r"runs\.db was (removed|replaced)"):
                await ask()


async def test_a_file_that_is_put_back_is_the_same_again(tmp_path: Path) -> None:
    path, away = tmp_path / "runs.db", tmp_path / "away.db"
    async with await SQLiteStore.open(path) as store:
        await store.create_run(embedded_run("owner", run_id=RUN_ID))
        path.rename(away)
        with pytest.raises(StoreLost):
            await store.get_run(RUN_ID)
        away.rename(path)
        assert (await store.get_run(RUN_ID)).run_id == RUN_ID


@pytest.mark.parametrize("replaced", [False, True])
async def test_commit_to_a_log_that_was_taken_away_is_not_acknowledged(
    tmp_path: Path, replaced: bool
) -> None:
    path = tmp_path / "runs.db"
    async with await SQLiteStore.open(path) as store:
        await store.create_run(new_run())
        log = Path(f"{path}-wal")
        log.rename(tmp_path / "away")
        if replaced:
            log.touch()
        said = "replaced by another file" if replaced else "removed or moved away"
        for ask in (lambda: store.create_run(new_run()), store.list_runs):
            with pytest.raises(StoreLost, match=rf"runs\.db-wal was {said}.*start again"):
                await ask()


async def test_nothing_is_refused_by_what_a_lost_log_says(tmp_path: Path) -> None:
    """A refusal is an answer, too: elsewhere the run may be there, or free."""
    path = tmp_path / "runs.db"
    async with await SQLiteStore.open(path) as store:
        await store.create_run(embedded_run("owner", run_id=RUN_ID))
        run = await store.get_run(RUN_ID)
        Path(f"{path}-wal").unlink()
        asked: list[Callable[[], Awaitable[object]]] = [
            lambda: store.create_run(new_run(run_id=RUN_ID)),
            lambda: store.update_run(cancel(replace(run, run_id="nowhere"))),
            lambda: store.claim_run(RUN_ID, lease_request("another")),
            lambda: store.release_lease(RUN_ID, Fencing("owner", 7), "an-update"),
            lambda: store.append(RUN_ID, Fencing("owner", 7), OUT, 0, b"late"),
            lambda: store.get_run("nowhere"),
            store.check_store,
        ]
        for ask in asked:
            with pytest.raises(StoreLost, match=r"runs\.db-wal was removed"):
                await ask()
        assert not Path(f"{path}-wal").exists()


LISTS = """
import apsw, sys
for (run_id,) in apsw.Connection(sys.argv[1]).execute("select run_id from runs order by run_id"):
    print(run_id)
"""


async def test_who_is_refused_keeps_nobody_from_saving_what_is_in_a_lost_log(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.db"
    one, other = await SQLiteStore.open(path), await SQLiteStore.open(path)
    await one.create_run(new_run(run_id="order-of-one"))
    await other.create_run(new_run(run_id="order-of-other"))
    Path(f"{path}-wal").unlink()
    await one.close()
    with pytest.raises(StoreUnavailable, match=r"runs\.db-wal was.*open in this proc") as refused:
        await SQLiteStore.open(path)
    assert refused.value.__traceback__ is not None  # with all that was at hand when it was raised
    await other.close()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", LISTS, path, stdout=PIPE)
    assert (await process.communicate())[0].split() == [b"order-of-one", b"order-of-other"]


async def test_lost_index_of_the_log_is_noticed_soon(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with await SQLiteStore.open(path) as store:
        Path(f"{path}-shm").unlink()
        for ask in (lambda: store.create_run(new_run()), store.list_runs):
            answers = [await asyncio.gather(ask(), return_exceptions=True) for _ in range(4)]
            (lost,) = [answer for (answer,) in answers if isinstance(answer, StoreLost)]
            assert "runs.db-shm was removed" in str(lost)


async def test_log_is_beside_the_file_that_a_link_leads_to(tmp_path: Path) -> None:
    path, link = tmp_path / "runs.db", tmp_path / "link.db"
    link.symlink_to(path)
    async with await SQLiteStore.open(link) as store:
        await store.create_run(new_run())
        Path(f"{path}-wal").unlink()
        with pytest.raises(StoreLost, match=r"runs\.db-wal was removed"):
            await store.create_run(new_run())


async def test_log_stays_the_same_while_others_come_and_go(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with await SQLiteStore.open(path) as store:
        for _ in range(3):
            async with await SQLiteStore.open(path) as other:
                await other.create_run(new_run())
            await store.create_run(new_run())
        connection = apsw.Connection(str(path))
        connection.execute("pragma wal_checkpoint(truncate)").fetchall()
        connection.close()
        await store.create_run(new_run())
        assert len((await store.list_runs()).items) == 7


OTHER = """
import asyncio, sys
from tenure.model.errors import StoreLost, StoreUnavailable
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.factories import new_run


async def main():
    async with await SQLiteStore.open(sys.argv[1]) as store:
        await store.create_run(new_run(run_id=sys.argv[2]))
        print("written", flush=True)
        await asyncio.to_thread(sys.stdin.read)


asyncio.run(main())
"""


@pytest.mark.parametrize("linked", [False, True])
async def test_nobody_begins_a_new_log_while_others_have_the_old_one(
    tmp_path: Path, linked: bool
) -> None:
    """As they end, their log is brought into the file, over whatever came there meanwhile."""
    path, link = tmp_path / "runs.db", tmp_path / "link.db"
    link.symlink_to(path)
    opened = link if linked else path
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OTHER, path, RUN_ID, stdin=PIPE, stdout=PIPE
    )
    assert other.stdin is not None
    assert other.stdout is not None
    try:
        assert await other.stdout.readline() == b"written\n"
        async with await SQLiteStore.open(opened) as store:  # its log is there
            assert [run.run_id for run in (await store.list_runs()).items] == [RUN_ID]
        Path(f"{path}-wal").unlink()
        Path(f"{path}-shm").unlink()
        with pytest.raises(StoreUnavailable, match=rf"runs\.db-wal was.*process {other.pid}"):
            await SQLiteStore.open(opened)
    finally:
        other.stdin.close()
        await other.wait()
    async with await SQLiteStore.open(opened) as store:
        assert [run.run_id for run in (await store.list_runs()).items] == [RUN_ID]


COMES_ANEW = """
import sys
from tenure.model.errors import StoreUnavailable
from tenure.stores.sqlite import SQLiteStore

try:
    SQLiteStore(sys.argv[1])
except StoreUnavailable as refused:
    print(refused)
"""


async def test_nor_does_anybody_in_another_container(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with await SQLiteStore.open(path) as store:
        await store.create_run(new_run(run_id=RUN_ID))
        Path(f"{path}-wal").unlink()
        Path(f"{path}-shm").unlink()
        container = unshared("--pid", "--fork", "--mount-proc")
        program = [*container, sys.executable, "-c", COMES_ANEW, str(path)]
        other = await asyncio.create_subprocess_exec(*program, stdout=PIPE)
        said, _ = await other.communicate()
        assert "runs.db-wal was removed" in said.decode()
        assert "cannot be seen from here" in said.decode()
    async with await SQLiteStore.open(path) as store:
        assert [run.run_id for run in (await store.list_runs()).items] == [RUN_ID]


async def test_asking_takes_no_lock_away_from_who_has_the_database_open(tmp_path: Path) -> None:
    """Closing any descriptor of a file takes all locks of its process away."""
    path = tmp_path / "runs.db"
    async with await SQLiteStore.open(path):
        Path(f"{path}-wal").unlink()
        with pytest.raises(StoreUnavailable, match="open in this process"):
            await SQLiteStore.open(path)
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-c", COMES_ANEW, path, stdout=PIPE
        )
        said, _ = await other.communicate()
        assert f"open in process {os.getpid()}: stop" in said.decode()


LOCKS_IT_WHOLE = """
import fcntl, sys
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_SH)
print("locked", flush=True)
sys.stdin.read()
"""


async def test_who_locks_the_file_for_purposes_of_its_own_is_in_nobodys_way(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await (await SQLiteStore.open(path)).close()
    assert list(tmp_path.iterdir()) == [path]  # the last who closes it removes the log
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LOCKS_IT_WHOLE, path, stdin=PIPE, stdout=PIPE
    )
    assert other.stdin is not None
    assert other.stdout is not None
    try:
        assert await other.stdout.readline() == b"locked\n"
        async with await SQLiteStore.open(path) as store:
            assert (await store.list_runs()).items == ()
    finally:
        other.stdin.close()
        await other.wait()


def without_log(path: Path) -> apsw.Connection:
    """As a copy is that somebody made with ``vacuum into``."""
    connection = apsw.Connection(str(path))
    assert connection.pragma("journal_mode", "delete") == "delete"
    return connection


async def test_who_reads_a_database_that_has_no_log_has_lost_none(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await (await SQLiteStore.open(path)).close()
    with closing(without_log(path)) as connection:
        connection.execute("begin; select * from runs").fetchall()
        with pytest.raises(StoreUnavailable, match="process has held"):
            SQLiteStore(path, patience=0.1)
    await (await SQLiteStore.open(path)).close()


async def test_who_writes_a_database_that_has_no_log_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await (await SQLiteStore.open(path)).close()
    with closing(without_log(path)) as connection:
        connection.execute("begin exclusive")
        opening = asyncio.ensure_future(SQLiteStore.open(path))
        done, _ = await asyncio.wait([opening], timeout=1.5)  # longer than it takes to settle
        assert not done
        connection.execute("commit")
    await (await opening).close()
