"""Reads asked for together share a view and an answer, and stay apart in everything else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from tenure.model.errors import RunNotFound, StoreError, StoreUnavailable
from tenure.model.snapshot import RunSnapshot
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.factories import annotate, embedded_run


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    async with await SQLiteStore.open(tmp_path / "runs.db") as opened:
        yield opened


class Held:
    """Keeps the reader busy, so that what is asked meanwhile waits together."""

    def __init__(self, store: SQLiteStore) -> None:
        self._gate = threading.Event()
        busy = threading.Event()

        def hold() -> None:
            busy.set()
            self._gate.wait(10)

        self._holding = asyncio.ensure_future(store._reader.run(hold))
        self._busy = busy

    async def begin(self) -> None:
        await asyncio.to_thread(self._busy.wait, 10)

    async def end(self) -> None:
        self._gate.set()
        await self._holding


async def created(store: SQLiteStore, count: int) -> list[str]:
    new = [embedded_run("owner-a") for _ in range(count)]
    await store.update_runs(new)
    return [each.snapshot.run_id for each in new]


async def asked_together(store: SQLiteStore, run_ids: list[str]) -> list[asyncio.Task[RunSnapshot]]:
    held = Held(store)
    await held.begin()
    asked = [asyncio.create_task(store.get_run(run_id)) for run_id in run_ids]
    await asyncio.sleep(0)
    await held.end()
    return asked


async def test_each_gets_its_own_answer(store: SQLiteStore) -> None:
    run_ids = await created(store, 120)
    asked = await asked_together(store, run_ids)
    assert [run.run_id for run in await asyncio.gather(*asked)] == run_ids


async def test_one_that_finds_nothing_costs_the_others_nothing(store: SQLiteStore) -> None:
    first, last = await created(store, 2)
    found, missing, also_found = await asked_together(store, [first, "no-such-run", last])
    with pytest.raises(RunNotFound, match="no-such-run"):
        await missing
    assert ((await found).run_id, (await also_found).run_id) == (first, last)


async def test_one_that_is_cancelled_costs_the_others_nothing(store: SQLiteStore) -> None:
    first, last = await created(store, 2)
    held = Held(store)
    await held.begin()
    gone, stays = (asyncio.create_task(store.get_run(run_id)) for run_id in (first, last))
    await asyncio.sleep(0)
    gone.cancel()
    await held.end()
    assert (await stays).run_id == last
    with pytest.raises(asyncio.CancelledError):
        await gone


async def test_what_was_written_before_the_question_is_in_the_answer(store: SQLiteStore) -> None:
    """The view begins when the question is taken up, not with the busy time before it."""
    (run_id,) = await created(store, 1)
    before = await store.get_run(run_id)
    held = Held(store)
    await held.begin()
    await store.update_run(annotate(before))
    asked = asyncio.create_task(store.get_run(run_id))
    await asyncio.sleep(0)
    await held.end()
    assert (await asked).version == 2


async def test_closing_answers_everybody_who_had_asked(tmp_path: Path) -> None:
    store = await SQLiteStore.open(tmp_path / "runs.db")
    (run_id,) = await created(store, 1)
    held = Held(store)
    await held.begin()
    asked = [asyncio.create_task(store.get_run(run_id)) for _ in range(120)]
    await asyncio.sleep(0)
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    await held.end()
    assert {run.run_id for run in await asyncio.gather(*asked)} == {run_id}
    await closing
    with pytest.raises(StoreUnavailable, match="has been closed"):
        await store.get_run(run_id)


async def test_an_error_that_ends_the_view_ends_nobody_elses_reading(store: SQLiteStore) -> None:
    """SQLite rolls a transaction back over some errors; the others read on in a new one."""
    (run_id,) = await created(store, 1)

    def broken() -> None:
        store._reader.connection.execute("rollback")
        raise apsw.IOError("disk I/O error")

    held = Held(store)
    await held.begin()
    bad = asyncio.create_task(store._reader.run(broken))
    in_a_view = asyncio.create_task(
        store._reader.run(lambda: store._reader.connection.in_transaction)
    )
    good = asyncio.create_task(store.get_run(run_id))
    await asyncio.sleep(0)
    await held.end()
    with pytest.raises(StoreError, match="disk I/O error"):
        await bad
    assert await in_a_view
    assert (await good).run_id == run_id


async def test_callers_of_two_event_loops_are_each_answered_in_their_own(
    store: SQLiteStore,
) -> None:
    (run_id,) = await created(store, 1)
    held = Held(store)
    await held.begin()
    here = asyncio.create_task(store.get_run(run_id))
    await asyncio.sleep(0)
    there = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(store.get_run(run_id))))
    while store._reader._jobs.qsize() < 2:
        await asyncio.sleep(0)
    await held.end()
    assert {(await here).run_id, (await there).run_id} == {run_id}
