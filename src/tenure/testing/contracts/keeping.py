"""``KeptApart``: leases are kept from beside an event loop that has come to a halt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from threading import Thread
from typing import TypeVar

from tenure.model.query import RunFilter
from tenure.model.snapshot import summarize
from tenure.model.status import RunStatus
from tenure.ports.leases import KeptApart, LeaseKeeping
from tenure.testing.contracts.acts import create_embedded, lease_of, write
from tenure.testing.contracts.harness import ApartKeptStore, ContractHarness
from tenure.testing.contracts.run_lives import AT_BIRTH
from tenure.testing.factories import cancel, end_run, start_step

T = TypeVar("T")

_SOON = 20.0
"""Seconds; for a machine that is very busy."""


class KeptApartContract(ContractHarness):
    async def test_store_keeps_apart(self, store: ApartKeptStore) -> None:
        assert isinstance(store, KeptApart)

    async def test_lease_is_renewed_while_the_loop_is_held_up(self, store: ApartKeptStore) -> None:
        run = await create_embedded(store, "owner-a", seconds=60)
        (renewal,) = _held_up(store, lambda line: line.renew_leases([lease_of(run)], 600))
        assert renewal.ok
        assert run.lease_expires_at is not None
        assert renewal.expires_at is not None
        assert renewal.expires_at > run.lease_expires_at
        assert (await store.get_run(run.run_id)).lease_expires_at == renewal.expires_at

    async def test_owner_goes_on_writing_after_that(self, store: ApartKeptStore) -> None:
        run = await create_embedded(store, "owner-a")
        _held_up(store, lambda line: line.renew_leases([lease_of(run)], 600))
        run = await write(store, start_step(run))
        _held_up(store, lambda line: line.renew_leases([lease_of(run)], 600))
        run = await write(store, end_run(run, RunStatus.FAILED))
        assert run.ended

    async def test_lost_lease_is_told(self, store: ApartKeptStore) -> None:
        run = await create_embedded(store, "owner-a")
        await write(store, end_run(run, RunStatus.FAILED))
        (renewal,) = _held_up(store, lambda line: line.renew_leases([lease_of(run)], 600))
        assert not renewal.ok

    async def test_requests_are_seen(self, store: ApartKeptStore) -> None:
        run = await create_embedded(store, "owner-a", **AT_BIRTH)
        run = await write(store, cancel(run))
        page = _held_up(store, lambda line: line.list_runs(RunFilter(owner_id="owner-a")))
        assert page.items == (summarize(run),)
        assert page.items[0].cancel_requested_at is not None


def _held_up(store: KeptApart, ask: Callable[[LeaseKeeping], Awaitable[T]]) -> T:
    """What another thread is answered while this one, and so its event loop, does nothing."""
    answers: list[T] = []

    async def keep() -> None:
        async with store.keeping() as line:
            answers.append(await ask(line))

    thread = Thread(target=lambda: asyncio.run(keep()), daemon=True)
    thread.start()
    thread.join(_SOON)
    (answer,) = answers
    return answer
