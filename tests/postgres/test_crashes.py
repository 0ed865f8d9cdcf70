"""Servers that die under load: what was acknowledged is there, and the clients go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import cycle
from typing import TypeVar

import psycopg
import pytest
from msgspec.structs import replace

from tenure.model.errors import StoreUnavailable
from tenure.model.outbox import Delivered
from tenure.model.tokens import Role, Token
from tenure.model.update import Event, Receipt, Update, Write, run_id_of
from tenure.ports.leases import WorkerInfo
from tenure.ports.store import LogKey
from tenure.stores.postgres import PostgresStore
from tenure.testing.contracts.acts import create, create_embedded, lease_of
from tenure.testing.factories import (
    HOOK,
    begin_run,
    change_run,
    embedded_run,
    fencing_of,
    lease_request,
    new_run,
    start_step,
)
from tests.postgres.database import migrated
from tests.postgres.server import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

T = TypeVar("T")

WRITERS = 8
RUNS_AT_ONCE = 100
"""Of those who write many runs in one call."""
OUT = LogKey(step=0, host="web1", stream="stdout")


async def persistently(call: Callable[[], Awaitable[T]]) -> T:
    """As the runtime does: the very same call, until it is answered."""
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(0.02)


async def persistently_all(store: PostgresStore, writes: Iterable[Write]) -> dict[str, Receipt]:
    """As above, of a batch: those of it that were not answered, until all are."""
    left = {run_id_of(write): write for write in writes}
    receipts: dict[str, Receipt] = {}
    while left:
        outcomes = await persistently(partial(store.update_runs, list(left.values())))
        for run_id, outcome in zip(list(left), outcomes, strict=True):
            if isinstance(outcome, Receipt):
                receipts[run_id] = outcome
                del left[run_id]
            else:
                assert isinstance(outcome, StoreUnavailable), outcome
    return receipts


@asynccontextmanager
async def two_stores(url: str) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    """With prepared statements, and without."""
    async with (
        PostgresStore(f"{url}&prepared=yes") as prepared,
        PostgresStore(f"{url}&prepared=no") as unprepared,
    ):
        yield prepared, unprepared


class Load:
    """Owners that write their runs again and again, and remember what they were promised. They take
    turns with the stores: half of them have their statements prepared. On each store one of them
    writes many runs in one call."""

    def __init__(self, *stores: PostgresStore) -> None:
        self._each = stores
        self._stores = cycle(stores)
        self.acknowledged: dict[str, int] = {}
        self.writes = 0
        self.batches = 0

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        writers = [
            asyncio.create_task(self._write(next(self._stores), f"owner-{i}"))
            for i in range(WRITERS)
        ]
        writers += [
            asyncio.create_task(self._write_many(store, f"owner-of-many-{i}"))
            for i, store in enumerate(self._each)
        ]
        try:
            yield
        finally:
            for writer in writers:
                writer.cancel()
            ended = await asyncio.gather(*writers, return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended

    async def _write(self, store: PostgresStore, owner_id: str) -> None:
        new = embedded_run(owner_id)
        receipt = await persistently(partial(store.create_run, new))
        run = await persistently(partial(store.get_run, new.snapshot.run_id))
        while True:
            self.acknowledged[run.run_id] = receipt.version
            self.writes += 1
            update = _telling(change_run(run, message=f"write {receipt.version}"))
            receipt = await persistently(partial(store.update_run, update))
            assert receipt.version == run.version + 1
            run = replace(run, version=receipt.version)

    async def _write_many(self, store: PostgresStore, owner_id: str) -> None:
        new = [embedded_run(owner_id) for _ in range(RUNS_AT_ONCE)]
        receipts = await persistently_all(store, new)
        runs = [replace(each.snapshot, version=1, owner_id=owner_id, fence=1) for each in new]
        while True:
            self.acknowledged |= {run_id: each.version for run_id, each in receipts.items()}
            self.batches += 1
            updates = [_telling(change_run(run, message=f"write {run.version}")) for run in runs]
            receipts = await persistently_all(store, updates)
            assert {each.version for each in receipts.values()} == {runs[0].version + 1}
            runs = [replace(run, version=run.version + 1) for run in runs]

    async def progress(self, writes: int) -> None:
        """Until there are so many more, and of the large ones another: clients go on."""
        goal, batches = self.writes + writes, self.batches
        async with asyncio.timeout(60):
            while self.writes < goal or self.batches == batches:
                await asyncio.sleep(0.005)

    async def verify(self, store: PostgresStore) -> None:
        for run_id, version in self.acknowledged.items():
            run = await store.get_run(run_id)
            assert version <= run.version <= version + 1  # the last one may lack its answer
            events = await store.read_events(run_id, limit=1_000_000)
            versions = sorted({event.version for event in events})
            assert versions == list(range(1, run.version + 1))
        assert (await store.check_store()).problems == ()


def _telling(update: Update) -> Update:
    """With an event, so that its version can be seen in the journal."""
    return replace(update, effect=replace(update.effect, events=(Event(type="run.note"),)))


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.long)])
async def test_server_killed_under_load_loses_nothing(kills: int) -> None:
    with Server(durable=True) as server:
        server.execute("create database load")
        await migrated(server.url("load"))
        async with two_stores(f"{server.url('load')}?statement_timeout=5") as (prepared, store):
            load = Load(prepared, store)
            async with load.at_work():
                for _ in range(kills):
                    await load.progress(40)
                    server.kill()
                    await asyncio.to_thread(server.start)
                await load.progress(40)
            await load.verify(store)


@pytest.fixture
def primary() -> Iterator[Server]:
    with Server(durable=True, wal_level="replica", max_wal_senders="4") as server:
        server.execute("create database load")
        asyncio.run(migrated(server.url("load")))
        yield server


@pytest.fixture
def standby(primary: Server) -> Iterator[Server]:
    """Streams from the primary; not promoted."""
    server = Server(durable=True, hot_standby="on")
    server.own()
    primary.run(
        "pg_basebackup", "-h", "127.0.0.1", "-p", str(primary.port), "-U", "tenure",
        "-D", str(server.data), "-R", "-X", "stream", "-c", "fast",
    )  # fmt: skip
    server.start()
    try:
        yield server
    finally:
        server.remove()


async def test_replica_promoted_in_mid_load_has_all_that_was_acknowledged(
    primary: Server, standby: Server
) -> None:
    primary.execute("alter system set synchronous_standby_names = '*'")
    primary.execute("select pg_reload_conf()")
    both = (
        f"postgresql://tenure@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/load"
        "?statement_timeout=5"
    )
    async with two_stores(both) as (prepared, store):
        load = Load(prepared, store)
        async with load.at_work():
            await load.progress(100)
            primary.kill()
            standby.execute("select pg_promote()")
            await load.progress(100)
        await load.verify(store)


async def stop_a_commit(server: Server) -> None:
    """As a person does who finds it waiting for a replica."""
    url = server.url("postgres")
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as somebody:
        while True:
            found = await somebody.execute(
                "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'"
            )
            if await found.fetchall():
                return
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("by", "prepared"), [("us", "no"), ("somebody", "yes")])
async def test_commit_that_no_replica_confirmed_is_not_acknowledged(
    primary: Server, standby: Server, by: str, prepared: str
) -> None:
    """One that is stopped while it waits for its replica succeeds, with a warning. Sent again under
    the same name it waits again, and is acknowledged when a replica has it."""
    primary.execute("alter system set synchronous_standby_names = '*'")
    primary.execute("select pg_reload_conf()")
    seconds = "0.5" if by == "us" else "60"
    url = primary.url("load", statement_timeout=seconds, prepared=prepared)

    async def refused(call: Awaitable[object]) -> None:
        async with asyncio.TaskGroup() as group:
            if by == "somebody":
                group.create_task(stop_a_commit(primary))
            with pytest.raises(StoreUnavailable, match="may or may not"):
                await call

    async with PostgresStore(url) as store:
        run = await create_embedded(store)
        beginning = begin_run(await create(store))
        standby.kill()
        update, new = start_step(run), new_run(run_id="not-acknowledged")
        await refused(store.update_run(update))
        await refused(store.update_run(update))
        await refused(store.create_run(new))
        await refused(store.create_run(new))
        await refused(store.begin_run(beginning))
        await refused(store.begin_run(beginning))
        standby.start()
        receipt = await persistently(partial(store.update_run, update))
        assert receipt.version == run.version + 1
        await persistently(partial(store.begin_run, beginning))
        await persistently(partial(store.create_run, new))
        standby_has = await persistently(partial(_runs_of, standby))
        assert standby_has == {
            run.run_id: receipt.version,
            "not-acknowledged": 1,
            beginning.run_id: 2,
        }


async def test_what_was_done_already_is_acknowledged_when_a_replica_has_it(
    primary: Server, standby: Server
) -> None:
    """Whoever sends a call again wants to hear the same as the first time, and to rely on it."""
    primary.execute("alter system set synchronous_standby_names = '*'")
    primary.execute("select pg_reload_conf()")
    async with PostgresStore(primary.url("load", statement_timeout="60")) as store:
        run, given_back = [await create_embedded(store) for _ in range(2)]
        free = await create(store, callbacks=(HOOK,))
        (held,) = await store.claim_deliveries("a-relay", seconds=600.0)
        token = Token(id="t1", name="ci", role=Role.VIEWER, digest=b"digest")
        claim, owner = lease_request("owner-b"), fencing_of(run)
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "append": partial(store.append, run.run_id, owner, OUT, 0, b"said"),
            "append nothing": partial(store.append, run.run_id, owner, OUT, 4, b""),
            "add a token": partial(store.add_token, token),
            "revoke it": partial(store.revoke_token, "t1"),
            "claim": partial(store.claim_run, free.run_id, claim),
            "give back": partial(
                store.release_lease, given_back.run_id, fencing_of(given_back), "given-back"
            ),
            "settle": partial(store.settle_delivery, held.id, "a-relay", Delivered()),
            "send a callback again": partial(store.requeue_delivery, held.id),
            "renew": partial(store.renew_leases, [lease_of(run)], 600.0),
            "be there": partial(store.heartbeat, WorkerInfo(owner_id="owner-a"), 600.0),
            "migrate": store.migrate_store,
        }
        standby.kill()
        for name, call in calls.items():
            for _ in range(2):
                async with asyncio.timeout(20), asyncio.TaskGroup() as group:
                    group.create_task(stop_a_commit(primary))
                    acknowledged = await _acknowledged(call)
                    assert not acknowledged, f"{name}: no replica has it"
        standby.start()
        del calls["settle"]  # it is to be sent again
        for call in calls.values():
            await persistently(call)


async def _acknowledged(call: Callable[[], Awaitable[object]]) -> bool:
    try:
        await call()
    except StoreUnavailable as error:
        return "may or may not" not in str(error)
    return True


async def _runs_of(server: Server) -> dict[str, int]:
    """What somebody sees who reads there."""
    async with await psycopg.AsyncConnection.connect(server.url("load")) as somebody:
        found = await somebody.execute("select run_id, version from tenure.runs")
        return dict(await found.fetchall())


async def test_replica_decides_nothing(primary: Server, standby: Server) -> None:
    async with PostgresStore(standby.url("load")) as store:
        with pytest.raises(StoreUnavailable, match="read replica"):
            await store.create_run(new_run())
        with pytest.raises(StoreUnavailable, match="read replica"):
            await store.list_runs()
