"""Output, followed while it is printed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tenure.model.snapshot import RunSnapshot
from tenure.model.status import HostStatus
from tenure.ports.store import LogKey
from tenure.testing.contracts.acts import create_embedded, write
from tenure.testing.factories import end_run, fencing_of, finish_host, start_step
from tenure.testing.faults import FaultyStore
from tests.gateway_live.conftest import until
from tests.gateway_live.viewers import TOKENS, Told, looking

pytestmark = pytest.mark.slow

Gateways = Callable[..., Any]

KEY = LogKey(step=0, host="web1", stream="stdout")


def path_of(run: RunSnapshot, more: str = "") -> str:
    return f"/v1/runs/{run.run_id}/logs/0/web1?follow=true{more}"


def text_of(told: list[Told]) -> str:
    *printed, end = told
    assert end.kind == "end"
    assert all(int(str(each.id)) == each.data["next_offset"] for each in printed)
    return "".join(each.data["text"] for each in printed)


@pytest.fixture
async def run(store: Any) -> RunSnapshot:
    return await write(store, start_step(await create_embedded(store)))


async def prints(store: Any, run: RunSnapshot, offset: int, data: bytes) -> int:
    end: int = await store.append(run.run_id, fencing_of(run), KEY, offset, data)
    return end


async def test_follows_until_the_host_has_ended(
    store: Any, gateways: Gateways, run: RunSnapshot
) -> None:
    gateway = await gateways(store)
    end = await prints(store, run, 0, b"one\n")
    async with looking(gateway.address, path_of(run)) as viewer:
        told = await viewer.some(1)
        end = await prints(store, run, end, b"two\n")
        told += await viewer.some(1)
        async with looking(gateway.address, path_of(run)) as late:
            await prints(store, run, end, b"three\n")
            await write(store, finish_host(run, 0, "web1"))
            assert text_of(await late.all()) == "one\ntwo\nthree\n"
        assert text_of(told + await viewer.all()) == "one\ntwo\nthree\n"
    await gateway.until_idle()


async def test_who_comes_back_goes_on_behind_what_it_has(
    store: Any, gateways: Gateways, run: RunSnapshot
) -> None:
    gateway = await gateways(store)
    await prints(store, run, 0, b"one\ntwo\n")
    await write(store, finish_host(run, 0, "web1"))
    async with looking(gateway.address, path_of(run), after="4") as viewer:
        assert text_of(await viewer.all()) == "two\n"
    async with looking(gateway.address, path_of(run, "&offset=6")) as viewer:
        assert text_of(await viewer.all()) == "o\n"
    async with looking(gateway.address, path_of(run, "&offset=6"), after="4") as viewer:
        assert text_of(await viewer.all()) == "two\n"


async def test_character_cut_in_two_comes_whole(
    store: Any, gateways: Gateways, run: RunSnapshot
) -> None:
    gateway = await gateways(store)
    word = "naïve €".encode()
    async with looking(gateway.address, path_of(run)) as viewer:
        end = await prints(store, run, 0, word[:3])
        told = await viewer.some(1)
        end = await prints(store, run, end, word[3:-2])
        end = await prints(store, run, end, word[-2:])
        await prints(store, run, end, b"\xff\xe2")
        await write(store, finish_host(run, 0, "web1", HostStatus.FAILED))
        assert text_of(told + await viewer.all()) == "naïve €\ufffd\ufffd"


async def test_much_output_comes_in_pieces(
    store: Any, gateways: Gateways, run: RunSnapshot
) -> None:
    gateway = await gateways(store)
    data = b"".join(b"line %d\n" % number for number in range(50_000))
    end = 0
    for start in range(0, len(data), 60_000):
        end = await prints(store, run, end, data[start : start + 60_000])
    await write(store, finish_host(run, 0, "web1"))
    async with looking(gateway.address, path_of(run)) as viewer:
        assert text_of(await viewer.all()) == data.decode()


async def test_quiet_outputs_cost_one_question_a_round_beside_that_for_their_runs(
    store: Any, gateways: Gateways
) -> None:
    counted: Any = FaultyStore(store, seed=0, rate=0)
    gateway = await gateways(counted)
    started = [await write(store, start_step(await create_embedded(store))) for _ in range(20)]
    async with AsyncExitStack() as lines:
        for run in started:
            await prints(store, run, 0, b"one\xe2")
        looks = [
            lines.enter_async_context(looking(gateway.address, path_of(run))) for run in started
        ]
        viewers = await asyncio.gather(*looks)
        await asyncio.gather(*(viewer.some(1) for viewer in viewers))
        rounds = counted.calls["sizes_of"]
        await until(lambda: counted.calls["sizes_of"] > rounds + 1)
        counted.calls.clear()
        await until(lambda: counted.calls["sizes_of"] >= 10)
        assert set(counted.calls) - TOKENS == {"versions_of", "sizes_of"}
        assert counted.calls["versions_of"] - counted.calls["sizes_of"] in (0, 1)
        await prints(store, started[3], 4, b"\x82\xac")
        (told,) = await viewers[3].some(1)
        assert told.data["text"] == "€"
        await write(store, finish_host(started[3], 0, "web1"))
        assert text_of(await viewers[3].all()) == ""


async def test_store_that_cannot_measure_many_is_asked_for_each_output(
    memory: Any, gateways: Gateways
) -> None:
    plain: Any = FaultyStore(memory, seed=0, rate=0)
    del plain.sizes_of
    gateway = await gateways(plain)
    run = await write(memory, start_step(await create_embedded(memory)))
    async with looking(gateway.address, path_of(run)) as viewer:
        await prints(memory, run, 0, b"one\n")
        told = await viewer.some(1)
        await write(memory, finish_host(run, 0, "web1"))
        assert text_of(told + await viewer.all()) == "one\n"


async def test_ends_with_the_run(store: Any, gateways: Gateways) -> None:
    gateway = await gateways(store)
    run = await create_embedded(store)
    async with looking(gateway.address, path_of(run)) as viewer:
        await write(store, end_run(run))
        assert text_of(await viewer.all()) == ""
