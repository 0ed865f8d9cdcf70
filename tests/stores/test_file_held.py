"""A run's file that another process holds: others hear who it is, and do not wait for ever."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest

from tenure.model.errors import StoreUnavailable
from tenure.stores.file import FileStore
from tenure.testing.factories import annotate, embedded_run, new_run

pytestmark = pytest.mark.slow

PATIENCE = 20.0
HELD, FREE = "held-run", "free-run"
STORE = "tenure.stores.file.store"

HOLDER = """
import fcntl, os, signal, sys

file = open(sys.argv[1], "rb")
fcntl.flock(file, int(sys.argv[2]))
os.kill(os.getpid(), signal.SIGSTOP)
"""
WRITER, READER = 2, 1
"""``LOCK_EX`` and ``LOCK_SH``."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{STORE}.READ_PATIENCE", 0.05)
    monkeypatch.setattr(f"{STORE}.WRITE_PATIENCE", 0.1)


@contextmanager
def stopped(directory: Path, how: int = WRITER) -> Iterator[int]:
    """A process that is stopped while it has the journal locked, by its id."""
    (journal,) = directory.glob(f"{HELD}.*.journal")
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(journal), str(how)]) as process:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        try:
            yield process.pid
        finally:
            process.kill()


async def two_runs(directory: Path) -> FileStore:
    store = FileStore(directory)
    await store.create_run(new_run(run_id=HELD))
    await store.create_run(new_run(run_id=FREE))
    return store


async def test_every_call_that_needs_the_run_says_who_holds_it_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    store = await two_runs(tmp_path)
    run = await store.get_run(HELD)
    new = new_run(run_id=HELD)
    asked: list[Callable[[], Awaitable[object]]] = [
        lambda: store.update_run(annotate(run, a=1)),
        lambda: store.create_run(new),
        lambda: store.get_run(HELD),
        lambda: store.read_events(HELD),
        lambda: store.is_live(HELD),
    ]
    async with asyncio.timeout(PATIENCE):
        with stopped(tmp_path) as pid:
            for ask in asked:
                with pytest.raises(StoreUnavailable) as refused:
                    await ask()
                assert f"{HELD}." in str(refused.value)
                assert f"process {pid}, which is stopped" in str(refused.value)
                assert f"kill -CONT {pid}" in str(refused.value)
            assert (await store.get_run(FREE)).run_id == FREE
        await store.update_run(annotate(run, a=1))
    await store.close()


async def test_list_of_a_store_that_was_just_opened_says_so_too(tmp_path: Path) -> None:
    await (await two_runs(tmp_path)).close()
    async with asyncio.timeout(PATIENCE), FileStore(tmp_path) as store:
        with stopped(tmp_path) as pid, pytest.raises(StoreUnavailable, match=f"process {pid},"):
            await store.list_runs()
        assert len((await store.list_runs()).items) == 2


async def test_stopped_reader_holds_up_writers_only(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE), await two_runs(tmp_path) as store:
        with stopped(tmp_path, READER) as pid:
            run = await store.get_run(HELD)
            with pytest.raises(StoreUnavailable, match=f"process {pid}, which is stopped"):
                await store.update_run(annotate(run, a=1))


async def test_who_can_wait_for_it_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{STORE}.READ_PATIENCE", PATIENCE)
    async with asyncio.timeout(PATIENCE), await two_runs(tmp_path) as store:
        with stopped(tmp_path) as pid:
            asked = asyncio.ensure_future(store.get_run(HELD))
            await asyncio.wait([asked], timeout=0.1)
            assert not asked.done()
            os.kill(pid, signal.SIGCONT)
            assert (await asked).run_id == HELD


async def test_closing_waits_neither_for_it_nor_for_those_who_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than the store has threads."""
    monkeypatch.setattr(f"{STORE}.WRITE_PATIENCE", 1000.0)
    store = FileStore(tmp_path)
    await store.create_run(embedded_run(run_id=HELD))
    run = await store.get_run(HELD)
    async with asyncio.timeout(PATIENCE):
        with stopped(tmp_path):
            writes = [store.update_run(annotate(run, n=number)) for number in range(20)]
            asked = asyncio.gather(*writes, return_exceptions=True)
            await asyncio.wait([asked], timeout=0.1)
            since = monotonic()
            await store.close()
            assert monotonic() - since < 5.0
            assert all(isinstance(answer, StoreUnavailable) for answer in await asked)
        async with FileStore(tmp_path) as other:
            assert not await other.is_live(HELD)


async def test_opening_does_not_wait_to_tidy_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = FileStore(tmp_path)
    await owner.create_run(embedded_run(run_id=HELD))
    await owner.create_run(new_run(run_id=FREE))
    monkeypatch.setattr(f"{STORE}.WRITE_PATIENCE", 1000.0)
    async with asyncio.timeout(PATIENCE), FileStore(tmp_path) as store:
        with stopped(tmp_path):
            assert (await store.get_run(FREE)).run_id == FREE
    await owner.close()
