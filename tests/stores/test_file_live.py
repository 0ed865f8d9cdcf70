"""Which runs have a living process, as told by locks of the operating system."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenure.model.errors import LeaseHeld, RunNotFound
from tenure.model.status import RunStatus
from tenure.model.update import Changes
from tenure.stores.file import FileStore
from tenure.testing.factories import (
    cancel,
    embedded_run,
    end_run,
    new_run,
    operator_status,
    owner_update,
)

RUN_ID = "held-elsewhere"

OWNER = f"""
import asyncio, sys
from tenure.stores.file import FileStore
from tenure.testing.factories import embedded_run

store = FileStore(sys.argv[1])
asyncio.run(store.create_run(embedded_run("owner-elsewhere", run_id={RUN_ID!r})))
print("created", flush=True)
sys.stdin.read()
"""

FORKING_OWNER = f"""
import asyncio, os, sys
from tenure.stores.file import FileStore
from tenure.testing.factories import embedded_run

store = FileStore(sys.argv[1])
asyncio.run(store.create_run(embedded_run("owner-elsewhere", run_id={RUN_ID!r})))
if os.fork():
    os._exit(0)
print("forked", flush=True)
sys.stdin.read()
"""

HANDED_DOWN = f"""
import asyncio, os, sys
from tenure.stores.file import FileStore
from tenure.testing.factories import embedded_run

async def use_and_close():
    try:
        await asyncio.wait_for(store.get_run({RUN_ID!r}), 20)
    except Exception as error:
        print(repr(error), flush=True)
    await store.close()

store = FileStore(sys.argv[1])
asyncio.run(store.create_run(embedded_run("owner-elsewhere", run_id={RUN_ID!r})))
print("created", flush=True)
child = os.fork()
if not child:
    try:
        asyncio.run(use_and_close())
    finally:
        os._exit(0)
os.waitpid(child, 0)
print((asyncio.run(store.get_run({RUN_ID!r}))).status, flush=True)
sys.stdin.read()
"""


@contextmanager
def program(text: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
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
    return sorted(path.suffix for path in directory.iterdir())


async def test_run_lives_as_long_as_its_process(tmp_path: Path) -> None:
    with program(OWNER, tmp_path) as owner:
        store = FileStore(tmp_path)
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
        assert files(tmp_path) == [".journal"]
        await store.close()


async def test_cancel_of_a_dead_run_ends_it(tmp_path: Path) -> None:
    with program(OWNER, tmp_path) as owner:
        owner.kill()
        owner.wait()
    store = FileStore(tmp_path)
    await store.update_run(cancel(await store.get_run(RUN_ID)))
    assert (await store.get_run(RUN_ID)).status == RunStatus.CANCELED
    assert files(tmp_path) == [".journal"]
    await store.close()


async def test_forked_child_does_not_keep_the_run_alive(tmp_path: Path) -> None:
    with program(FORKING_OWNER, tmp_path) as parent:
        parent.wait()
        store = FileStore(tmp_path)
        assert not await store.is_live(RUN_ID)
        await store.close()


async def test_store_that_a_forked_child_uses_and_closes_stays_its_parents(tmp_path: Path) -> None:
    """As when a child unwinds what it was in the middle of: the parent's runs go on."""
    with program(HANDED_DOWN, tmp_path) as parent:
        assert parent.stdout is not None
        assert "opened before the process forked; open it anew" in parent.stdout.readline()
        assert parent.stdout.readline() == "running\n"
        async with FileStore(tmp_path) as store:
            assert await store.is_live(RUN_ID)


async def test_looking_neither_takes_nor_frees_the_lock(tmp_path: Path) -> None:
    owner, other = FileStore(tmp_path), FileStore(tmp_path)
    new = embedded_run()
    run_id = new.snapshot.run_id
    await owner.create_run(new)
    for store in (owner, other, other, owner, other):
        assert await store.is_live(run_id)
    await other.close()
    third = FileStore(tmp_path)
    assert await third.is_live(run_id)
    await owner.close()
    assert not await third.is_live(run_id)
    assert files(tmp_path) == [".journal"]
    await third.close()


@pytest.mark.parametrize("through", ["its own store", "another store"])
@pytest.mark.parametrize("how", ["ended", "released"])
async def test_lock_goes_with_the_owner(tmp_path: Path, how: str, through: str) -> None:
    store, other = FileStore(tmp_path), FileStore(tmp_path)
    new = embedded_run()
    await store.create_run(new)
    run = await store.get_run(new.snapshot.run_id)
    assert files(tmp_path) == [".journal", ".live"]
    last = end_run(run) if how == "ended" else owner_update(run, Changes(), release=True)
    await (store if through == "its own store" else other).update_run(last)
    assert files(tmp_path) == [".journal"]
    assert not await store.is_live(run.run_id)
    assert not await other.is_live(run.run_id)
    await store.close()
    await other.close()


async def test_owner_repeating_its_creation_holds_the_run_again(tmp_path: Path) -> None:
    """The first answer was lost together with the store object that got it."""
    new = embedded_run()
    run_id = new.snapshot.run_id
    first = FileStore(tmp_path)
    await first.create_run(new)
    second = FileStore(tmp_path)
    await second.create_run(new)
    assert await second.is_live(run_id)
    await first.close()
    assert not await second.is_live(run_id)
    await second.create_run(new)
    assert await second.is_live(run_id)
    await second.close()


async def test_run_without_an_owner_is_not_live(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    new = new_run()
    await store.create_run(new)
    assert not await store.is_live(new.snapshot.run_id)
    assert files(tmp_path) == [".journal"]
    with pytest.raises(RunNotFound):
        await store.is_live("never-created")
    await store.close()


async def test_leftovers_of_the_dead_are_swept_those_of_the_living_stay(tmp_path: Path) -> None:
    living = FileStore(tmp_path)
    kept = embedded_run(run_id="kept-alive")
    await living.create_run(kept)
    with program(OWNER, tmp_path) as owner:
        owner.kill()
        owner.wait()
    for name in (".run-000001.abcdef.tmp", ".other-run.012345.tmp"):
        (tmp_path / name).write_bytes(b"half a rec")
    assert files(tmp_path) == [".journal", ".journal", ".live", ".live", ".tmp", ".tmp"]
    store = FileStore(tmp_path)
    assert len((await store.list_runs()).items) == 2
    assert files(tmp_path) == [".journal", ".journal", ".live"]
    assert await store.is_live("kept-alive")
    await store.close()
    await living.close()
