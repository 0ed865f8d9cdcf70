"""Helpers of the contracts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from tenure.model.leases import Lease
from tenure.model.query import Page
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import Update
from tenure.ports.leases import LeaseStore
from tenure.ports.store import RunStateStore
from tenure.testing.factories import LONG, embedded_run, lease_request, new_run, start_step

T = TypeVar("T")
E = TypeVar("E", bound=Exception)

UNKNOWN_RUN_IDS = ("never-created", "../../etc/passwd", "", "nul-\0-in-it", "half-a-pair-\ud800")
"""Ids without a run, most of them invalid."""


async def create(store: RunStateStore, **fields: Any) -> RunSnapshot:
    """A queued run."""
    new = new_run(**fields)
    await store.create_run(new)
    return await store.get_run(new.snapshot.run_id)


async def create_embedded(
    store: RunStateStore, owner_id: str = "owner-a", **fields: Any
) -> RunSnapshot:
    """A running run under a long lease of ``owner_id``; needs no ``LeaseStore``."""
    new = embedded_run(owner_id, **fields)
    await store.create_run(new)
    return await store.get_run(new.snapshot.run_id)


async def write(store: RunStateStore, update: Update) -> RunSnapshot:
    """Apply ``update`` and return the run."""
    await store.update_run(update)
    return await store.get_run(update.run_id)


async def claim(
    store: LeaseStore, run_id: str, owner_id: str = "owner-a", *, seconds: float = LONG
) -> RunSnapshot:
    """The claimed run, base of its owner's updates."""
    return (await store.claim_run(run_id, lease_request(owner_id, seconds=seconds))).snapshot


async def start_first_step(store: RunStateStore, run: RunSnapshot) -> RunSnapshot:
    return await write(store, start_step(run, 0))


def lease_of(run: RunSnapshot) -> Lease:
    """The lease of this snapshot."""
    assert run.owner_id is not None
    assert run.lease_expires_at is not None
    return Lease(
        run_id=run.run_id, owner_id=run.owner_id, fence=run.fence, expires_at=run.lease_expires_at
    )


async def refused(error: type[E], call: Awaitable[object]) -> E:
    """The error that ``call`` must raise."""
    with pytest.raises(error) as raised:
        await call
    return raised.value


async def at_once(calls: Iterable[Awaitable[T]]) -> tuple[list[T], list[BaseException]]:
    """Make all calls concurrently; returns results and errors."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    good = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    return good, [outcome for outcome in outcomes if isinstance(outcome, BaseException)]


async def pages(
    listing: Callable[..., Awaitable[Page[T]]], *, limit: int
) -> AsyncIterator[tuple[T, ...]]:
    """The items of each page, to the last."""
    page = await listing(limit=limit)
    yield page.items
    while page.cursor is not None:
        page = await listing(limit=limit, cursor=page.cursor)
        yield page.items


def record_of(run: RunSnapshot) -> RunSnapshot:
    """The stored record, without the state of its lease, which depends on the clock."""
    return replace(run, lease_expires_at=None, owner_lost=False)
