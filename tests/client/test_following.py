"""Following through lines that break: everything comes, in order, and once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tenure
from tenure.client import Gateway
from tenure.client.transport import Message, messages_in
from tenure.gateway.live.streams import HEARTBEAT, OPENING, message
from tenure.gateway_process import GatewayProcess
from tenure.model.errors import RunNotFound, StoreUnavailable
from tenure.ports.store import LogKey
from tenure.stores.memory import InMemoryStore
from tenure.testing.contracts.acts import claim, create, write
from tenure.testing.factories import annotate, end_run, fencing_of, start_run
from tests.postgres.proxy import Proxy

OUT = LogKey(step=0, host="web1", stream="stdout")


@given(st.data(), st.lists(st.integers(0, 1 << 40), max_size=8))
async def test_messages_are_the_same_however_they_are_cut(data: st.DataObject, facts: Any) -> None:
    sent = OPENING
    for number, fact in enumerate(facts):
        sent += message({"fact": fact, "text": "a\n\nb"}, place=number) + HEARTBEAT
    sent += message({}, kind="end") + b"id: 9\ndata: cut off"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=9)))

    async def pieces() -> AsyncIterator[bytes]:
        for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
            yield sent[start:end]

    found = [each async for each in messages_in(pieces())]
    assert [(each.kind, each.place) for each in found[:-1]] == [
        ("message", str(number)) for number in range(len(facts))
    ]
    assert found[-1] == Message("end", None, b"{}")


@asynccontextmanager
async def served(kept: Any) -> AsyncIterator[tuple[Proxy, Gateway]]:
    runner = tenure.Runner(kept)
    async with (
        GatewayProcess(kept, runner, no_token=True).open("127.0.0.1", 0) as address,
        Proxy(urlsplit(address).port or 0) as proxy,
        Gateway(f"http://127.0.0.1:{proxy.port}") as gateway,
    ):
        yield proxy, gateway
    await runner.close()


@pytest.mark.slow
async def test_events_of_a_run_come_once_each_whatever_breaks() -> None:
    kept = InMemoryStore()
    run = await claim(kept, (await create(kept)).run_id)
    run = await write(kept, start_run(run))
    async with served(kept) as (proxy, gateway), asyncio.timeout(30):
        seen = []
        async for event in gateway.follow_events(run.run_id):
            seen.append(event)
            proxy.cut()
            if event.type in ("run.running", "run.annotated") and len(seen) < 8:
                await kept.update_run(annotate(run, number=len(seen)))
            elif event.type == "run.annotated":
                await write(kept, end_run(await kept.get_run(run.run_id)))
        assert seen == await kept.read_events(run.run_id)
        assert len(seen) > 8
        behind = seen[-2].position
        assert [each async for each in gateway.follow_events(run.run_id, behind)] == seen[-1:]


@pytest.mark.slow
async def test_changes_of_all_runs_and_the_output_of_a_task_too() -> None:
    kept = InMemoryStore()
    async with served(kept) as (proxy, gateway), asyncio.timeout(30):
        async with aclosing(gateway.follow_changes(None)) as changes:
            made = []
            for _ in range(3):
                made.append((await create(kept)).run_id)
                page = await anext(changes)
                assert [event.run_id for event in page.events] == made[-1:]
                proxy.cut()
        run = await write(kept, start_run(await claim(kept, made[0])))
        fencing = fencing_of(run)
        await kept.append(run.run_id, fencing, OUT, 0, b"one\n")
        text = ""
        async for piece in gateway.follow_output(run.run_id, 0, "web1"):
            text += piece.text
            proxy.cut()
            if text == "one\n":
                await kept.append(run.run_id, fencing, OUT, 4, b"two\n")
            else:
                await write(kept, end_run(run))
        assert text == "one\ntwo\n"


@pytest.mark.slow
async def test_who_cannot_follow_is_told_at_once() -> None:
    async with served(InMemoryStore()) as (_, gateway):
        with pytest.raises(RunNotFound):
            await anext(gateway.follow_events("no-such-run"))
    async with Gateway("http://127.0.0.1:1") as gateway:
        with pytest.raises(StoreUnavailable, match="did not answer"):
            await anext(gateway.follow_events("some-run-1"))
