"""A database of an older Tenure is brought up to date and loses nothing."""

from __future__ import annotations

from pathlib import Path

import apsw

from tenure.model.leases import Purpose
from tenure.model.outbox import origin_of
from tenure.model.query import RunFilter
from tenure.model.status import Recovery
from tenure.model.tokens import Role, Token, digest_of
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.contracts.acts import create, create_embedded, write
from tenure.testing.contracts.run_states import ASKS
from tenure.testing.factories import (
    HOOK,
    cancel,
    claim_request,
    fencing_of,
    start_step,
    unique,
)

BEFORE_TOKENS = """
    drop table secrets;
    alter table runs drop column token_fence;
    alter table runs drop column token_id;
    drop index runs_to_cancel;
    drop table tokens;
    pragma user_version = 3;
"""
BEFORE_UNAPPROVED = """
    drop table secrets;
    alter table runs drop column token_fence;
    alter table runs drop column token_id;
    drop index runs_to_cancel;
    drop table tokens;
    drop index runs_unapproved;
    pragma user_version = 2;
"""
BEFORE_ORIGINS = """
    drop table secrets;
    alter table runs drop column token_fence;
    alter table runs drop column token_id;
    drop index runs_to_cancel;
    drop table tokens;
    drop index runs_unapproved;
    drop index deliveries_due;
    alter table deliveries drop column origin;
    create index deliveries_due on deliveries (due_at, number)
      where state = 'waiting' and blocked = 0 and rest_boot is null;
    pragma user_version = 1;
"""
BEFORE_FEED = """
    drop table secrets;
    alter table runs drop column token_fence;
    alter table runs drop column token_id;
    drop index runs_to_cancel;
    create table old_journal (
      seq integer not null, version integer not null, at integer not null, fence integer not null,
      update_id text not null, events text not null, primary key (seq, version)
    ) without rowid;
    insert into old_journal select seq, version, at, fence, update_id, events from journal;
    drop table journal;
    alter table old_journal rename to journal;
    pragma user_version = 4;
"""
BEFORE_RUNS_TO_CANCEL = """
    drop table secrets;
    alter table runs drop column token_fence;
    alter table runs drop column token_id;
    drop index runs_to_cancel;
    pragma user_version = 5;
"""


async def test_callbacks_from_before_origins_are_still_sent(tmp_path: Path) -> None:
    """Their origin is unknown, so they are never left out."""
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        old = await create(store, callbacks=(HOOK,))
    with apsw.Connection(str(tmp_path / "runs.db")) as connection:
        connection.execute(BEFORE_ORIGINS)
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        await create(store, callbacks=(HOOK,))
        report = await store.check_store()
        assert report.problems == ()
        claimed = await store.claim_deliveries("relay", except_origins=[origin_of(HOOK)])
        assert [one.run_id for one in claimed] == [old.run_id]
        assert len(await store.claim_deliveries("another relay")) == 1


async def test_runs_that_waited_for_approval_before_are_found(tmp_path: Path) -> None:
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        await create(store)
        old = await create(store, approval=ASKS)
    with apsw.Connection(str(tmp_path / "runs.db")) as connection:
        connection.execute(BEFORE_UNAPPROVED)
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        assert (await store.check_store()).problems == ()
        found = (await store.list_runs(RunFilter(unapproved=True))).items
        assert [run.run_id for run in found] == [old.run_id]


async def test_histories_from_before_the_feed_are_in_it(tmp_path: Path) -> None:
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        runs = [await create_embedded(store, f"owner-{number}") for number in range(3)]
        for run in runs:
            await write(store, start_step(run))
        journals = [await store.read_events(run.run_id) for run in runs]
    with apsw.Connection(str(tmp_path / "runs.db")) as connection:
        connection.execute(BEFORE_FEED)
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        assert (await store.check_store()).problems == ()
        told = (await store.read_changes()).events
        assert [await store.read_events(run.run_id) for run in runs] == journals
    assert [[e for e in told if e.run_id == run.run_id] for run in runs] == journals


async def test_a_store_from_before_tokens_has_none_and_takes_some(tmp_path: Path) -> None:
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        old = await create(store)
    with apsw.Connection(str(tmp_path / "runs.db")) as connection:
        connection.execute(BEFORE_TOKENS)
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        assert await store.list_tokens() == []
        token = Token(id="t1", name="ci", role=Role.VIEWER, digest=digest_of("words"))
        await store.add_token(token)
        assert [each.name for each in await store.list_tokens()] == ["ci"]
        assert (await store.get_run(old.run_id)).run_id == old.run_id


async def test_runs_given_back_after_a_cancel_request_before_are_found(tmp_path: Path) -> None:
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        old = await write(store, cancel(await create_embedded(store, recovery=Recovery.RESUME)))
        await store.release_lease(old.run_id, fencing_of(old), unique("release"))
    with apsw.Connection(str(tmp_path / "runs.db")) as connection:
        connection.execute(BEFORE_RUNS_TO_CANCEL)
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        claimed = await store.claim_runs(claim_request("someone", purpose=Purpose.RECONCILE))
        assert [one.lease.run_id for one in claimed] == [old.run_id]
