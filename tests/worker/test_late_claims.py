"""A store that comes to a claim late was away, and with it everybody who wanted to renew a lease:
what ended meanwhile is left to its owner for once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from tenure.model.errors import LeaseHeld
from tenure.model.leases import LATE, Purpose, in_time
from tenure.model.status import Recovery
from tenure.stores.postgres import PostgresStore
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.contracts.acts import claim, create, create_embedded
from tenure.testing.factories import claim_request, fencing_of, lease_request, unique
from tests.postgres.database import TestDatabase
from tests.postgres.proxy import Proxy
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

BRIEF = 0.2
"""Seconds of a lease that ends while its store is away."""
SHORT = 6 * LATE
"""Of those who claim; with longer ones a store may take longer."""

Away = Callable[[], Any]


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest) -> tuple[TestDatabase, Server] | None:
    if request.param == "sqlite":
        return None
    database: TestDatabase = request.getfixturevalue("postgres_going")
    database.empty()
    return database, request.getfixturevalue("postgres_server")


@pytest.fixture
async def store(
    server: tuple[TestDatabase, Server] | None, tmp_path: Path
) -> AsyncIterator[tuple[Any, Away]]:
    """And how it is made to be away for a moment."""
    if server is None:
        path = tmp_path / "runs.db"
        async with await SQLiteStore.open(path) as opened:
            yield opened, lambda: _held(path)
        return
    async with (
        Proxy(server[1].port) as proxy,
        PostgresStore(server[0].url_through(proxy.port)) as opened,
    ):
        yield opened, lambda: _silent(proxy)


@asynccontextmanager
async def _held(path: Path) -> AsyncIterator[None]:
    other = apsw.Connection(str(path))
    other.execute("begin immediate")
    try:
        yield
    finally:
        other.close()


@asynccontextmanager
async def _silent(proxy: Proxy) -> AsyncIterator[None]:
    proxy.hold_answers()
    try:
        yield
    finally:
        proxy.let_answers_pass()


async def _late(away: Away, call: Any) -> Any:
    await asyncio.sleep(2 * BRIEF)  # it has ended by whoever's clock
    async with away():
        asked = asyncio.ensure_future(call)
        await asyncio.wait([asked], timeout=LATE + 0.3)
        assert not asked.done()
    return await asked


async def test_it_takes_no_expired_lease_and_the_next_does(store: tuple[Any, Away]) -> None:
    opened, away = store
    run = await create(opened)
    other = await create(opened)
    await claim(opened, run.run_id, "owner-a", seconds=BRIEF)
    claimed = await _late(away, opened.claim_runs(claim_request("owner-b", seconds=SHORT, limit=5)))
    assert [each.snapshot.run_id for each in claimed] == [other.run_id]
    assert (await opened.get_run(run.run_id)).owner_id == "owner-a"
    (taken,) = await opened.claim_runs(claim_request("owner-b", seconds=SHORT, limit=5))
    assert (taken.snapshot.run_id, taken.snapshot.takeovers) == (run.run_id, 1)


@pytest.mark.parametrize("purpose", Purpose)
async def test_those_it_does_not_take_keep_no_others_from_it(
    store: tuple[Any, Away], purpose: Purpose
) -> None:
    """Though they come first, and are as many as were asked for."""
    opened, away = store
    recovery = Recovery.RESUME if purpose is Purpose.EXECUTE else Recovery.INTERRUPT
    for _ in range(2):
        await create_embedded(opened, "owner-a", seconds=BRIEF, recovery=recovery)
    free = await create_embedded(opened, "owner-a", recovery=recovery)
    await opened.release_lease(free.run_id, fencing_of(free), unique("release"))
    request = claim_request("owner-b", seconds=SHORT, limit=2, purpose=purpose)
    (taken,) = await _late(away, opened.claim_runs(request))
    assert taken.snapshot.run_id == free.run_id
    (again,) = await opened.claim_runs(request)
    assert again.lease.fence == taken.lease.fence


async def test_nor_does_the_claim_of_a_single_run(store: tuple[Any, Away]) -> None:
    opened, away = store
    run = await create(opened)
    await claim(opened, run.run_id, "owner-a", seconds=BRIEF)
    with pytest.raises(LeaseHeld):
        await _late(away, opened.claim_run(run.run_id, lease_request("owner-b", seconds=SHORT)))
    assert (await claim(opened, run.run_id, "owner-b")).fence == 2


async def test_of_owners_proven_dead_it_does(store: tuple[Any, Away]) -> None:
    opened, away = store
    run = await create(opened)
    await claim(opened, run.run_id, "owner-a")
    dead = frozenset({"owner-a"})
    (taken,) = await _late(
        away, opened.claim_runs(claim_request("owner-b", seconds=SHORT, limit=5, dead_owners=dead))
    )
    assert taken.snapshot.owner_id == "owner-b"


@pytest.mark.parametrize(
    ("lease", "late"), [(0.5, LATE), (SHORT, LATE), (18.0, 3.0), (30.0, 5.0), (86_400.0, 5.0)]
)
def test_what_is_late_depends_on_how_long_leases_last(lease: float, late: float) -> None:
    one, many = lease_request(seconds=lease), claim_request(seconds=lease)
    assert in_time(one, late) is one
    assert in_time(many, late) is many
    assert not in_time(one, late + 0.01).expired
    assert not in_time(many, late + 0.01).expired
