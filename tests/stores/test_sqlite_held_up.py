"""A database file that another process holds: it is waited for, and that is said."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from tenure.model.errors import StoreUnavailable
from tenure.stores.sqlite import SQLiteStore, holdup, thread
from tenure.testing.factories import new_run

PATIENCE = 20.0
STUCK = "the store does not answer: another process holds {}; waiting for it"
AGAIN = "the store answers again after"


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


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdup, "UNNOTICED", 0.0)


class Hours:
    """A clock that only waiting for the lock moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(holdup, "rest", self.rest)
        for module in (holdup, thread):
            monkeypatch.setattr(module, "monotonic", lambda: self.now)

    def rest(self, seconds: float) -> None:
        self.now += seconds


async def refusals(store: SQLiteStore, count: int) -> None:
    writes = [store.create_run(new_run()) for _ in range(count)]
    for answer in await asyncio.gather(*writes, return_exceptions=True):
        assert isinstance(answer, StoreUnavailable)
        assert f"has held {store.path}" in str(answer)


async def test_all_who_wait_in_line_for_one_holder_give_up_with_the_first(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Hours(monkeypatch)
    async with SQLiteStore(path, patience=10.0) as store:
        with held(path):
            await refusals(store, 5)
            assert 1010.0 < clock.now < 1010.1
            await refusals(store, 5)  # asked for when it was known: a moment for all of them
            assert clock.now < 1011.2
        await store.create_run(new_run())
        with held(path):
            asked_at = clock.now
            await refusals(store, 1)
            assert clock.now > asked_at + 10.0


async def test_who_looks_after_a_while_is_as_patient_as_the_first(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Hours(monkeypatch)
    async with SQLiteStore(path, patience=10.0) as store:
        with held(path):
            await refusals(store, 1)
            clock.now += 600.0
            await refusals(store, 1)
            assert clock.now > 1620.0


async def test_it_is_said_once_for_all_that_wait_and_once_that_it_is_over(
    path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await SQLiteStore.open(path) as store:
        impatient(monkeypatch)
        with held(path):
            asked = [asyncio.ensure_future(store.create_run(new_run())) for _ in range(3)]
            await said.something()
            assert not any(one.done() for one in asked)
        await asyncio.gather(*asked)
        monkeypatch.setattr(holdup, "UNNOTICED", 1000.0)
        await store.create_run(new_run())
    assert len(said.words) == 2
    assert said.words[0] == STUCK.format(path)
    assert said.words[1].startswith(AGAIN)


async def test_it_is_said_while_the_store_is_being_opened(
    path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await SQLiteStore.open(path)).close()
    impatient(monkeypatch)
    with held(path, "pragma locking_mode = exclusive; begin exclusive"):
        opening = asyncio.ensure_future(SQLiteStore.open(path))
        await said.something()
        assert not opening.done()
    await (await opening).close()
    assert said.words[0] == STUCK.format(path)
    assert said.words[-1].startswith(AGAIN)


async def test_who_gives_up_and_asks_again_is_not_told_again(
    path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await SQLiteStore.open(path) as store:
        impatient(monkeypatch)
        monkeypatch.setattr(holdup, "LOCK_PATIENCE", 0.05)
        with held(path):
            for _ in range(3):
                with pytest.raises(StoreUnavailable, match="has held"):
                    await store.create_run(new_run())
        await store.create_run(new_run())
    assert [one.startswith(AGAIN) for one in said.words] == [False, True]


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
