"""Whoever decides on a stored run locks it, and then reads it. Read first, a lease may look over
that is renewed before the lock: renewals change no version, so nothing else would tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import psycopg
import pytest

from tenure.model.snapshot import RunSnapshot
from tenure.model.status import Recovery, RunStatus
from tenure.stores.postgres import PostgresStore
from tenure.testing.contracts.acts import create, lease_of
from tenure.testing.factories import embedded_run, lease_request, operator_status
from tests.postgres.database import migrated
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

SLOW_READER = """
create or replace function tenure.clock() returns timestamptz language plpgsql volatile as $$
begin
  if current_setting('application_name') = 'slow' then
    perform pg_advisory_lock_shared(1);
    perform pg_advisory_unlock_shared(1);
  end if;
  return clock_timestamp();
end $$
"""
"""For a process of that name, reading a run takes as long as somebody else likes: leases are judged
by that clock."""
READING = "select 1 from pg_stat_activity where wait_event = 'advisory'"


Decision = Coroutine[Any, Any, object]


async def end(store: PostgresStore, run: RunSnapshot) -> object:
    return await store.update_run(operator_status(run, RunStatus.INTERRUPTED))


async def take_over(store: PostgresStore, run: RunSnapshot) -> object:
    return await store.claim_run(run.run_id, lease_request("owner-b"))


@pytest.mark.parametrize("decide", [end, take_over], ids=lambda each: str(each.__name__))
async def test_owner_is_not_told_that_he_keeps_what_is_taken_from_him(
    postgres_server: Server, decide: Callable[[PostgresStore, RunSnapshot], Decision]
) -> None:
    postgres_server.execute("drop database if exists locking with (force)")
    postgres_server.execute("create database locking")
    url = postgres_server.url("locking")
    await migrated(url)
    async with PostgresStore(url) as owner, PostgresStore(f"{url}?application_name=slow") as other:
        new = embedded_run("owner-a", seconds=0.01, recovery=Recovery.RESUME)
        await owner.create_run(new)
        while not (held := await owner.get_run(new.snapshot.run_id)).owner_lost:
            await asyncio.sleep(0.002)
        await create(other)  # it has connected, and knows the time
        with psycopg.connect(url, autocommit=True) as somebody:
            somebody.execute(SLOW_READER)
            somebody.execute("select pg_advisory_lock(1)")
            deciding = asyncio.create_task(decide(other, held))
            while not somebody.execute(READING).fetchall():
                await asyncio.sleep(0.002)
            (renewal,) = await owner.renew_leases([lease_of(held)], 60.0)
        await deciding
        assert renewal.busy  # and not renewed: he trusts it no longer than before
        (renewal,) = await owner.renew_leases([lease_of(held)], 60.0)
        assert not renewal.ok
        assert (await owner.get_run(held.run_id)).fence == held.fence + 1
