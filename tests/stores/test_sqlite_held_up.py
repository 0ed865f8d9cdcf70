"""A database file that another process holds: it is waited for, and that is said."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import apsw
import pytest

from tenure.model.errors import StoreUnavailable
from tenure.stores.sqlite import SQLiteStore, database
from tenure.testing.factories import new_run

PATIENCE = 20.0
WAITING = "another process has locked {}; waiting for it"


class Said(logging.Handler):
    """Warnings of stores, whichever thread they come from."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.words: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.words.append(record.getMessage())
        self._loop.call_soon_threadsafe(self._news.set)

    async def something(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self._news.wait()


@pytest.fixture
async def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    said = Said()
    monkeypatch.setattr(logging.getLogger("tenure.stores"), "handlers", [said])
    return said


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@contextmanager
def held(path: Path, how: str = "begin exclusive") -> Iterator[apsw.Connection]:
    """As a connection of another program has it."""
    other = apsw.Connection(str(path))
    other.execute(how).fetchall()
    try:
        yield other
    finally:
        other.close()


async def test_calls_that_wait_behind_one_another_give_up_together(path: Path) -> None:
    async with SQLiteStore(path, patience=1.0) as store:
        await store.create_run(new_run())
        with held(path):
            began = monotonic()
            writes = [store.create_run(new_run()) for _ in range(4)]
            for answer in await asyncio.gather(*writes, return_exceptions=True):
                assert isinstance(answer, StoreUnavailable)
                assert str(answer) == (
                    f"{path} is locked by another process: nothing was written. Look for a stopped "
                    f"or hung process that has it open (fuser {path}), let it go on or end it, and "
                    "try again"
                )
            assert monotonic() - began < 4 * 1.0
        assert (await store.create_run(new_run())).version == 1


async def test_a_long_wait_is_logged_once_and_ends_with_the_lock(
    path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await SQLiteStore.open(path) as store:
        await store.create_run(new_run())
        monkeypatch.setattr(database, "_WARN_AFTER_S", 0.0)
        with held(path):
            asked = asyncio.ensure_future(store.create_run(new_run()))
            await said.something()
            assert not asked.done()
        assert (await asked).version == 1
    assert said.words == [WAITING.format(path)]


async def test_so_is_a_wait_while_the_store_is_being_opened(
    path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await SQLiteStore.open(path)).close()
    monkeypatch.setattr(database, "_WARN_AFTER_S", 0.0)
    with held(path, "pragma locking_mode = exclusive; begin exclusive"):
        opening = asyncio.ensure_future(SQLiteStore.open(path))
        await said.something()
        assert not opening.done()
    await (await opening).close()
    assert said.words == [WAITING.format(path)]


async def test_nothing_is_said_of_the_short_waits_of_those_who_share_a_file(
    path: Path, said: Said
) -> None:
    async with await SQLiteStore.open(path) as one, await SQLiteStore.open(path) as other:
        writes = [store.create_run(new_run()) for store in (one, other) for _ in range(20)]
        await asyncio.gather(*writes)
    assert said.words == []


async def test_who_closes_does_not_wait_for_what_nobody_wants_any_more(path: Path) -> None:
    async with asyncio.timeout(PATIENCE):
        store = await SQLiteStore.open(path)
        with held(path, "begin immediate"):
            asked = [asyncio.ensure_future(store.create_run(new_run())) for _ in range(3)]
            await asyncio.sleep(0)
            for each in asked:
                each.cancel()
            await store.close()


async def test_but_it_waits_for_what_somebody_is_owed(path: Path) -> None:
    store = await SQLiteStore.open(path)
    with held(path, "begin immediate") as other:
        asked = asyncio.ensure_future(store.create_run(new_run()))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(store.close())
        await asyncio.wait([asked, closing], timeout=0.1)
        assert not asked.done()
        other.execute("rollback")
    async with asyncio.timeout(PATIENCE):
        assert (await asked).version == 1
        await closing
