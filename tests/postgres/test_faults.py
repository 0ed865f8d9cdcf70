"""What a network and a busy server do to a client: clear errors, no hang, no lost update."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from datetime import timedelta
from time import monotonic

import psycopg
import pytest

from tenure.model.errors import StoreError, StoreIncompatible, StoreUnavailable
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import Receipt
from tenure.ports.store import LogKey
from tenure.stores.postgres import PostgresStore
from tenure.testing.contracts.acts import create_embedded, lease_of
from tenure.testing.factories import change_run, embedded_run, fencing_of, new_run, start_step
from tests.postgres.database import migrated
from tests.postgres.proxy import Proxy
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

EITHER = pytest.mark.parametrize("prepared", ["yes", "no"])
OUT = LogKey(step=0, host="web1", stream="stdout")


@pytest.fixture
async def database(postgres_server: Server) -> str:
    """With the server's own clock."""
    postgres_server.execute("drop database if exists faults with (force)")
    postgres_server.execute("create database faults")
    await migrated(postgres_server.url("faults"))
    return "faults"


@pytest.fixture
async def proxy(postgres_server: Server) -> AsyncIterator[Proxy]:
    async with Proxy(postgres_server.port) as proxy:
        yield proxy


@EITHER
async def test_commit_whose_answer_was_lost_is_recognised(
    postgres_server: Server, database: str, proxy: Proxy, prepared: str
) -> None:
    url = postgres_server.url(database, proxy.port, prepared=prepared)
    async with PostgresStore(url) as store:
        await store.list_runs()
        new = embedded_run("owner-a")
        await create_embedded(store)  # the connection for writing is there
        proxy.lose_next_answer(new.snapshot.run_id)
        with pytest.raises(StoreUnavailable):
            await store.create_run(new)
        assert (await store.create_run(new)).version == 1
        run = await store.get_run(new.snapshot.run_id)
        update = start_step(run)
        proxy.lose_next_answer(run.run_id)
        with pytest.raises(StoreUnavailable):
            await store.update_run(update)
        assert (await store.update_run(update)).version == 2
        assert (await store.get_run(run.run_id)).version == 2


@EITHER
async def test_black_hole_is_given_up_and_the_next_call_goes_through(
    postgres_server: Server, database: str, proxy: Proxy, prepared: str
) -> None:
    impatient = {"statement_timeout": "0.3", "connect_timeout": "2", "prepared": prepared}
    async with PostgresStore(postgres_server.url(database, proxy.port, **impatient)) as store:
        run = await create_embedded(store)
        proxy.fall_silent()
        with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.3 s"):
            await store.update_run(start_step(run))
        proxy.speak_again()
        assert (await store.update_run(start_step(run))).version == 2


async def test_frozen_server_is_given_up_and_found_again(
    postgres_server: Server, database: str
) -> None:
    url = postgres_server.url(database, statement_timeout="0.3", connect_timeout="2")
    async with PostgresStore(url) as store:
        run = await create_embedded(store)
        postgres_server.freeze()
        try:
            with pytest.raises(StoreUnavailable, match="did not answer"):
                await store.renew_leases([lease_of(run)], 60.0)
            with pytest.raises(StoreUnavailable, match="did not answer"):
                await store.get_run(run.run_id)
        finally:
            postgres_server.thaw()
        assert await store.get_run(run.run_id) == run


@EITHER
async def test_server_that_is_away_is_said_to_be_and_found_again(prepared: str) -> None:
    with Server(durable=True) as server:
        server.execute("create database away")
        await migrated(server.url("away"))
        async with PostgresStore(server.url("away", prepared=prepared)) as store:
            run = await create_embedded(store)
            server.kill()
            with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1"):
                await store.get_run(run.run_id)
            server.start()
            receipt = await store.update_run(start_step(run))
            assert receipt.version == 2


@EITHER
async def test_slow_statement_is_stopped_on_the_server_too(
    postgres_server: Server, database: str, prepared: str
) -> None:
    url = postgres_server.url(database, statement_timeout="0.3", prepared=prepared)
    async with PostgresStore(url) as store:
        await create_embedded(store)
        with psycopg.connect(postgres_server.url(database)) as somebody:
            somebody.execute("lock table tenure.runs in access exclusive mode")
            with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.3 s"):
                await store.create_run(new_run())
            waiting = somebody.execute(
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
            ).fetchone()
            assert waiting == (0,)
        await store.create_run(new_run())


async def test_exhausted_connections_are_said_to_be(postgres_server: Server, database: str) -> None:
    url = postgres_server.url(
        database, connections="1", connect_timeout="1", statement_timeout="10"
    )
    async with PostgresStore(url) as store:
        await create_embedded(store)
        with psycopg.connect(postgres_server.url(database)) as somebody:
            somebody.execute("lock table tenure.runs in access exclusive mode")
            first = asyncio.create_task(store.create_run(new_run()))
            await asyncio.sleep(0)
            with pytest.raises(StoreUnavailable, match=r"all 1 connections .* busy for 1 s"):
                await store.create_run(new_run())
            somebody.rollback()
            assert (await first).version == 1


STUCK = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"


async def test_renewals_do_not_wait_behind_output_or_writes(
    postgres_server: Server, database: str
) -> None:
    """One of each is stuck in mid-statement, on the only connection of its lane."""
    url = postgres_server.url(database)
    async with PostgresStore(f"{url}?connections=1&connect_timeout=2") as store:
        run, kept = [await create_embedded(store, seconds=60.0) for _ in range(2)]
        with psycopg.connect(url) as somebody, psycopg.connect(url, autocommit=True) as onlooker:
            somebody.execute("lock table tenure.journal, tenure.log_chunks in exclusive mode")
            update = change_run(run, message="stuck")
            writing = asyncio.create_task(store.update_run(update))
            printing = asyncio.create_task(store.append(run.run_id, fencing_of(run), OUT, 0, b"on"))
            async with asyncio.timeout(20):
                while onlooker.execute(STUCK).fetchone() != (2,):
                    await asyncio.sleep(0.005)
            (renewal,) = await store.renew_leases([lease_of(kept)], 600.0)
            assert renewal.ok
            assert renewal.expires_at is not None
            assert renewal.expires_at > await store.store_time() + timedelta(seconds=300)
            assert not writing.done()
            assert not printing.done()
            somebody.rollback()
            assert (await writing).version == 2
            assert await printing == 2


@EITHER
async def test_run_that_somebody_locked_delays_no_other(
    postgres_server: Server, database: str, prepared: str
) -> None:
    async with PostgresStore(postgres_server.url(database, prepared=prepared)) as store:
        runs = [await create_embedded(store, f"owner-{number}") for number in range(3)]
        with psycopg.connect(postgres_server.url(database)) as somebody:
            somebody.execute(
                "select 1 from tenure.runs where run_id = %s for update", (runs[1].run_id,)
            )
            alone = await _seconds(store.update_runs([start_step(runs[1])]))
            began = monotonic()
            outcomes = await store.update_runs([start_step(run) for run in runs])
            assert monotonic() - began < alone / 2, "the others waited for it"
            first, locked, third = outcomes
            assert isinstance(locked, StoreUnavailable)
            assert "locked" in str(locked)
            assert [_version(first), _version(third)] == [2, 2]
            alone = await _seconds(store.renew_leases([lease_of(runs[1])], 60.0))
            began = monotonic()
            renewals = await store.renew_leases([lease_of(run) for run in runs], 60.0)
            assert monotonic() - began < alone / 2, "the others waited for it"
            assert all(renewal.ok for renewal in renewals)
            assert [renewal.busy for renewal in renewals] == [False, True, False]
            assert renewals[1].expires_at == runs[1].lease_expires_at
            somebody.rollback()
        (renewal,) = await store.renew_leases([lease_of(runs[1])], 60.0)
        assert not renewal.busy
        assert (await store.update_run(start_step(runs[1]))).version == 2


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        ("53100", StoreUnavailable, "no space left on the server"),
        ("25006", StoreUnavailable, "read replica or was made read-only"),
        ("57014", StoreUnavailable, "took too long"),
        ("42501", StoreIncompatible, "grant it the schema"),
        ("42P01", StoreIncompatible, "tenure store migrate"),
        ("26000", StoreIncompatible, "Say prepared=no in the store URL"),
        ("42P05", StoreIncompatible, "Say prepared=no in the store URL"),
    ],
)
async def test_what_the_server_says_is_said_in_our_words(
    postgres_server: Server, database: str, code: str, kind: type[StoreError], said: str
) -> None:
    postgres_server.execute(
        f"create function failing() returns trigger language plpgsql as $$ begin "
        f"raise exception using errcode = '{code}', message = 'said the server'; end $$; "
        "create trigger failing before insert on tenure.journal execute function failing()",
        database,
    )
    async with PostgresStore(postgres_server.url(database)) as store:
        with pytest.raises(kind, match=said) as raised:
            await store.create_run(new_run())
        assert "127.0.0.1" in str(raised.value)
        assert (await store.list_runs()).items == ()


async def test_full_disk_is_a_clear_error_and_loses_nothing() -> None:
    """The limit is a real one: the kernel lets no file of the server grow any further."""
    with Server() as server:
        server.execute("create database full_disk")
        await migrated(server.url("full_disk"))
        async with PostgresStore(server.url("full_disk")) as store:
            run = await create_embedded(store)
            server.stop()
            server.start(largest_file=17 << 20)
            run, said = await _fill_up(store, run)
            assert f"no space left on the server postgresql://127.0.0.1:{server.port}/" in said
            assert "nothing was written; free some and try again" in said
            assert await store.get_run(run.run_id) == run
            server.stop()
            server.start()
            receipt = await store.update_run(change_run(run, message="there is space again"))
            assert receipt.version == run.version + 1
            assert (await store.check_store()).problems == ()


async def _fill_up(store: PostgresStore, run: RunSnapshot) -> tuple[RunSnapshot, str]:
    """Update until the store says it cannot; the run as last acknowledged, and what was said."""
    noise = "".join(chr(0x4E00 + number * 7919 % 20000) for number in range(200_000))
    for number in range(200):
        try:
            await store.update_run(change_run(run, message=f"{number} {noise[number * 100 :]}"))
        except StoreUnavailable as error:
            return run, str(error)
        run = await store.get_run(run.run_id)
    raise AssertionError("the disk never filled up")


async def _seconds(call: Awaitable[object]) -> float:
    began = monotonic()
    await call
    return monotonic() - began


def _version(outcome: object) -> int:
    assert isinstance(outcome, Receipt)
    return outcome.version
