"""A database file that is taken away while it is open: noticed, and nothing is answered from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pytest

from tenure.model.errors import StoreLost
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.factories import embedded_run, new_run, start_step

pytestmark = pytest.mark.slow

RUN_ID = "order-1234"


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


async def test_connection_that_is_opened_later_makes_no_new_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with await SQLiteStore.open(path) as store:
        await store.list_runs()
        path.unlink()
        with pytest.raises(StoreLost, match=r"runs\.db was removed"):
            await store.create_run(new_run())
        with pytest.raises(StoreLost, match=r"runs\.db was removed"):
            await store.check_store()
        assert not path.exists()


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
