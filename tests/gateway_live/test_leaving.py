"""How streams end before what they tell of has: by the viewer, by the gateway, by patience."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tenure.gateway.live.streams import MAX_KEPT_BYTES, Patience
from tenure.model.snapshot import RunSnapshot
from tenure.testing.contracts.acts import create_embedded, write
from tenure.testing.factories import annotate, end_run
from tests.gateway_live.conftest import until
from tests.gateway_live.test_one_run import journal_of, path_of, places
from tests.gateway_live.viewers import Told, looking
from tests.gateway_live.writers import says

pytestmark = pytest.mark.slow

Gateways = Callable[..., Any]

_LARGE = "x" * 60_000
_MANY = 200
"""More, together, than sockets of a viewer who does not read can hold."""


async def much_happens(store: Any, run: RunSnapshot) -> None:
    for _ in range(_MANY):
        run = await says(store, run, _LARGE)


async def test_nothing_remains_of_viewers_who_left(memory: Any, gateways: Gateways) -> None:
    gateway = await gateways(memory)
    run = await create_embedded(memory)
    tasks = len(asyncio.all_tasks())
    for path in (path_of(run), "/v1/events", "/v1/events?after=now"):
        async with AsyncExitStack() as lines:
            looks = [lines.enter_async_context(looking(gateway.address, path)) for _ in range(20)]
            await asyncio.gather(*looks)
            assert not gateway.live.idle
        await gateway.until_idle()
    async with asyncio.timeout(20):
        while len(asyncio.all_tasks()) > tasks:
            await asyncio.sleep(0.01)


async def test_quiet_stream_gives_signs_of_life(memory: Any, gateways: Gateways) -> None:
    gateway = await gateways(memory, patience=Patience(heartbeat=0.01))
    run = await create_embedded(memory)
    async with looking(gateway.address, path_of(run)) as viewer:
        await viewer.some(1)
        waiting = asyncio.create_task(viewer.all())
        async with asyncio.timeout(20):
            while viewer.comments < 3:
                await asyncio.sleep(0.01)
        run = await write(memory, end_run(run))
        assert places(await waiting) == (await journal_of(memory, run))[1:]


@pytest.mark.parametrize("quiet", [True, False])
async def test_shutdown_sends_viewers_away_with_their_place(
    memory: Any, gateways: Gateways, *, quiet: bool
) -> None:
    gateway, other = await gateways(memory), await gateways(memory)
    run = await create_embedded(memory)
    async with looking(gateway.address, path_of(run)) as viewer:
        told = await viewer.some(1)
        if not quiet:
            await write(memory, annotate(run, found="something"))
        await gateway.stop()
        *more, last = await viewer.all()
    assert gateway.live.idle
    told += more
    assert (last.kind, last.data) == ("closing", {"after": told[-1].place})
    run = await write(memory, end_run(await memory.get_run(run.run_id)))
    async with looking(other.address, path_of(run), after=last.data["after"]) as viewer:
        assert places(told + await viewer.all()) == await journal_of(memory, run)


async def test_new_gateway_goes_on_with_the_feed_where_the_old_one_stopped(
    memory: Any, gateways: Gateways
) -> None:
    gateway, other = await gateways(memory), await gateways(memory)
    run = await create_embedded(memory)
    async with looking(gateway.address, "/v1/events") as viewer:
        (first,) = await viewer.some(1)
        await gateway.stop()
        (last,) = await viewer.all()
    assert (last.kind, last.data) == ("closing", {"after": first.id})
    run = await write(memory, end_run(run))
    async with looking(other.address, "/v1/events", after=first.id) as viewer:
        (second,) = await viewer.some(1)
    told = [
        f"{each['version']}.{each['seq']}"
        for page in (first, second)
        for each in page.data["events"]
    ]
    assert told == await journal_of(memory, run)


async def test_viewer_who_never_reads_is_dropped_and_the_others_get_everything(
    memory: Any, gateways: Gateways
) -> None:
    gateway = await gateways(memory, patience=Patience(stalled=0.3, farewell=30))
    run = await create_embedded(memory)
    async with (
        looking(gateway.address, path_of(run), small=True) as stuck,
        looking(gateway.address, path_of(run)) as viewer,
    ):
        told = asyncio.create_task(viewer.all())
        await much_happens(memory, run)
        run = await write(memory, end_run(await memory.get_run(run.run_id)))
        journal = await journal_of(memory, run)
        assert places(await told) == journal
        await gateway.until_idle()
        late, last = await _read_at_last(stuck)
    assert late == journal[: len(late)]
    assert len(late) < len(journal)
    assert (last.kind, last.data) == ("dropped", {"after": late[-1]})
    async with looking(gateway.address, path_of(run), after=late[-1]) as viewer:
        assert late + places(await viewer.all()) == journal


async def _read_at_last(viewer: Any) -> tuple[list[str], Told]:
    *events, last = await viewer.all()
    return [each.place for each in events], last


async def test_viewer_who_is_hung_up_on_is_gone(memory: Any, gateways: Gateways) -> None:
    """Though it never reads what was on its way."""
    gateway = await gateways(memory, patience=Patience(stalled=0.1, farewell=0.1))
    run = await create_embedded(memory)
    async with looking(gateway.address, path_of(run), small=True):
        await much_happens(memory, run)
        streams = gateway.meters.streams.labels("/v1/runs/{run_id}/events")
        await until(lambda: streams._value.get() == 0)


async def test_slow_viewer_reads_in_the_store_what_is_not_kept(
    store: Any, gateways: Gateways
) -> None:
    gateway = await gateways(store)
    run = await create_embedded(store)
    async with (
        looking(gateway.address, path_of(run), small=True) as slow,
        looking(gateway.address, path_of(run)) as quick,
    ):
        seen = asyncio.create_task(quick.all())
        await much_happens(store, run)
        assert _MANY * len(_LARGE) > MAX_KEPT_BYTES
        run = await write(store, end_run(await store.get_run(run.run_id)))
        journal = await journal_of(store, run)
        assert places(await seen) == journal
        assert places(await slow.all()) == journal
