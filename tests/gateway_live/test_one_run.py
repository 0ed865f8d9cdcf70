"""One run, watched: history first, then live, no gap, no duplicate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tenure.gateway.live.streams import RunJournal, all_of_version
from tenure.model.errors import StoreIncompatible, StoreUnavailable
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.model.update import Position
from tenure.testing.contracts.acts import create_embedded, write
from tenure.testing.factories import annotate, end_run, finish_step, start_step
from tenure.testing.faults import FaultyStore
from tests.gateway_live.conftest import until
from tests.gateway_live.viewers import TOKENS, Told, looking

pytestmark = pytest.mark.slow

Gateways = Callable[..., Any]

VIEWERS = 200


async def through_its_steps(store: Any, run: RunSnapshot) -> RunSnapshot:
    for index in range(len(run.steps)):
        run = await write(store, start_step(run, index))
        run = await write(store, finish_step(run, index))
    return run


async def journal_of(store: Any, run: RunSnapshot) -> list[str]:
    return [str(event.position) for event in await store.read_events(run.run_id)]


def path_of(run: RunSnapshot) -> str:
    return f"/v1/runs/{run.run_id}/events"


def places(told: list[Told]) -> list[str]:
    """Of its events; the last one says that the run has ended."""
    *events, end = told
    assert end.kind == "end"
    assert all(each.kind == "message" and each.id == each.place for each in events)
    return [each.place for each in events]


async def test_two_hundred_viewers_get_the_same_events_in_order(
    memory: Any, gateways: Gateways
) -> None:
    gateway = await gateways(memory)
    run = await create_embedded(memory)
    async with AsyncExitStack() as lines:
        looks = [
            lines.enter_async_context(looking(gateway.address, path_of(run)))
            for _ in range(VIEWERS)
        ]
        viewers = await asyncio.gather(*looks)
        run = await write(memory, end_run(await through_its_steps(memory, run)))
        told = await asyncio.gather(*(viewer.all() for viewer in viewers))
    assert places(told[0]) == await journal_of(memory, run)
    assert told[0][-1].data == {"run_id": run.run_id, "status": "success"}
    assert all(each == told[0] for each in told)
    await gateway.until_idle()


async def test_viewer_who_comes_in_the_middle_gets_all_of_it(
    store: Any, gateways: Gateways
) -> None:
    gateway = await gateways(store)
    run = await write(store, start_step(await create_embedded(store)))
    before = len(await journal_of(store, run))
    async with looking(gateway.address, path_of(run)) as first:
        told = await first.some(before)
        run = await write(store, finish_step(run))
        async with looking(gateway.address, path_of(run)) as second:
            run = await write(store, end_run(run))
            assert places(await second.all()) == await journal_of(store, run)
        assert places(told + await first.all()) == await journal_of(store, run)


async def test_who_comes_back_at_any_place_gets_exactly_the_rest(
    store: Any, gateways: Gateways
) -> None:
    gateway = await gateways(store)
    run = await write(store, end_run(await through_its_steps(store, await create_embedded(store))))
    journal = await journal_of(store, run)
    for number, place in enumerate(journal[:-1]):
        async with looking(gateway.address, path_of(run), after=place) as viewer:
            assert places(await viewer.all()) == journal[number + 1 :]


async def test_who_has_seen_the_end_is_told_not_to_come_back(
    memory: Any, gateways: Gateways
) -> None:
    gateway = await gateways(memory)
    run = await write(memory, end_run(await create_embedded(memory)))
    journal = await journal_of(memory, run)
    async with looking(gateway.address, path_of(run), after=journal[-1]) as viewer:
        assert viewer.status == 204
    await write(memory, annotate(run, found="later"))
    async with looking(gateway.address, path_of(run), after=journal[-1]) as viewer:
        assert len(places(await viewer.all())) == 1


async def test_who_comes_back_while_it_runs_gets_the_rest_and_what_happens(
    store: Any, gateways: Gateways
) -> None:
    gateway = await gateways(store)
    run = await write(store, start_step(await create_embedded(store)))
    so_far = await journal_of(store, run)
    async with AsyncExitStack() as lines:
        viewers = [
            await lines.enter_async_context(looking(gateway.address, path_of(run), after=place))
            for place in so_far
        ]
        run = await write(store, end_run(run, RunStatus.FAILED))
        journal = await journal_of(store, run)
        for number, viewer in enumerate(viewers):
            assert places(await viewer.all()) == journal[number + 1 :]


async def test_where_a_viewer_was_counts_more_than_where_it_once_began(
    memory: Any, gateways: Gateways
) -> None:
    """A browser comes back to the address it began with."""
    gateway = await gateways(memory)
    run = await through_its_steps(memory, await create_embedded(memory))
    run = await write(memory, end_run(run))
    journal = await journal_of(memory, run)
    for asked, seen in ((0, 3), (3, 0)):
        path = f"{path_of(run)}?after={journal[asked]}"
        async with looking(gateway.address, path) as viewer:
            assert places(await viewer.all()) == journal[asked + 1 :]
        async with looking(gateway.address, path, after=journal[seen]) as viewer:
            assert places(await viewer.all()) == journal[seen + 1 :]


async def test_who_is_ahead_of_the_store_hears_the_end(memory: Any, gateways: Gateways) -> None:
    gateway = await gateways(memory)
    run = await create_embedded(memory)
    async with (
        looking(gateway.address, path_of(run), after="1000.0") as ahead,
        looking(gateway.address, path_of(run)) as viewer,
    ):
        run = await write(memory, end_run(run))
        assert places(await viewer.all()) == await journal_of(memory, run)
        assert places(await ahead.all()) == []


@pytest.mark.parametrize("after", ["nonsense", "1.2.3", "-1", "1.0\u0661", "9" * 40])
async def test_place_that_is_none_is_refused(memory: Any, gateways: Gateways, after: str) -> None:
    gateway = await gateways(memory)
    run = await create_embedded(memory)
    async with looking(gateway.address, path_of(run), after=after) as viewer:
        assert viewer.status == 400


async def test_stream_is_neither_kept_nor_held_back_on_its_way(
    memory: Any, gateways: Gateways
) -> None:
    gateway = await gateways(memory)
    run = await create_embedded(memory)
    async with looking(gateway.address, path_of(run), accept_encoding="gzip") as viewer:
        headers = viewer.headers
        await viewer.some(1)
    assert "content-encoding" not in headers
    assert "content-length" not in headers
    assert {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-store",
        "x-accel-buffering": "no",
        "connection": "close",
        "x-content-type-options": "nosniff",
        "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    }.items() <= headers.items()


@pytest.mark.parametrize(
    ("accept", "streams"),
    [
        ("text/event-stream", True),
        ("Text/Event-Stream; charset=utf-8", True),
        ("text/event-stream, */*", True),
        ("application/json;q=0.9, text/event-stream", True),
        ("text/event-stream;q=0.1", True),
        ("text/event-stream;q=0", False),
        ("application/json, text/event-stream; q=0.000", False),
        ("application/json, text/event-stream;q=0.5", False),
        ("*/*, text/event-stream;q=0.5", False),
        ("text/event-streams", False),
        ("*/*", False),
        ("", False),
    ],
)
async def test_who_would_rather_have_json_gets_json(
    memory: Any, gateways: Gateways, accept: str, streams: bool
) -> None:
    gateway = await gateways(memory)
    run = await create_embedded(memory)
    async with looking(gateway.address, path_of(run), accept=accept) as viewer:
        assert viewer.headers["content-type"].startswith("text/event-stream") == streams


async def test_unknown_run_is_no_stream(memory: Any, gateways: Gateways) -> None:
    gateway = await gateways(memory)
    async with looking(gateway.address, "/v1/runs/never-created/events") as viewer:
        assert (viewer.status, viewer.headers["content-type"]) == (404, "application/problem+json")


async def test_viewers_do_not_ask_the_store_each_for_himself(
    memory: Any, gateways: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round asks once, however many look."""
    asked: list[Any] = []
    read = memory.read_events

    async def counted(run_id: str, after: Any = (), **limit: Any) -> Any:
        asked.append(after)
        return await read(run_id, after, **limit)

    monkeypatch.setattr(memory, "read_events", counted)
    gateway = await gateways(memory)
    run = await create_embedded(memory)
    async with AsyncExitStack() as lines:
        looks = [
            lines.enter_async_context(looking(gateway.address, path_of(run))) for _ in range(50)
        ]
        viewers = await asyncio.gather(*looks)
        await asyncio.gather(*(viewer.some(1) for viewer in viewers))
        asked.clear()
        run = await write(memory, end_run(run))
        for viewer in viewers:
            await viewer.all()
        mark = asked.index(max(asked))
        assert len(asked[mark:]) < 10, "one look finds the end, and then nobody asks again"


async def test_history_is_read_once_for_all_who_want_the_same_at_once(memory: Any) -> None:
    run = await through_its_steps(memory, await create_embedded(memory))
    counted: Any = FaultyStore(memory, seed=0, rate=0)
    journal = RunJournal(counted, run, all_of_version(run.version))
    first, *others = await asyncio.gather(*(journal.history(Position()) for _ in range(50)))
    assert first.data.count(b"data: ") == len(await journal_of(memory, run))
    assert all(each is first for each in others)
    assert counted.calls["read_events"] == 1
    assert await journal.history(Position()) == first
    assert counted.calls["read_events"] == 2, "what was read is not kept"


async def test_quiet_runs_cost_one_question_a_round_and_one_more_when_something_happens(
    store: Any, gateways: Gateways
) -> None:
    counted: Any = FaultyStore(store, seed=0, rate=0)
    surveyed: list[list[str]] = []
    ask = counted.versions_of

    async def versions_of(run_ids: Any) -> Any:
        surveyed.append(sorted(run_ids))
        return await ask(run_ids)

    counted.versions_of = versions_of
    gateway = await gateways(counted)
    runs = [await create_embedded(store) for _ in range(50)]
    async with AsyncExitStack() as lines:
        looks = [lines.enter_async_context(looking(gateway.address, path_of(run))) for run in runs]
        viewers = await asyncio.gather(*looks)
        await asyncio.gather(*(viewer.some(1) for viewer in viewers))
        surveyed.clear()
        counted.calls.clear()
        await until(lambda: len(surveyed) >= 10)
        assert set(counted.calls) - TOKENS == {"versions_of"}
        assert all(asked == sorted(run.run_id for run in runs) for asked in surveyed)
        run = await write(store, annotate(runs[7], found="something"))
        (told,) = await viewers[7].some(1)
        assert told.place == (await journal_of(store, run))[-1]
        done = len(surveyed)
        await until(lambda: len(surveyed) > done)
        assert counted.calls["read_events"] == 1


async def test_store_without_versions_is_asked_for_each_run(
    memory: Any, gateways: Gateways
) -> None:
    plain: Any = FaultyStore(memory, seed=0, rate=0)
    del plain.versions_of
    gateway = await gateways(plain)
    run = await create_embedded(memory)
    async with looking(gateway.address, path_of(run)) as viewer:
        told = await viewer.some(1)
        run = await write(memory, end_run(run))
        assert places(told + await viewer.all()) == await journal_of(memory, run)


@pytest.mark.parametrize("wrong", [StoreUnavailable("away"), StoreIncompatible("newer")])
async def test_question_for_all_that_fails_ends_nobody(
    memory: Any, gateways: Gateways, monkeypatch: pytest.MonkeyPatch, wrong: Exception
) -> None:
    failing, failed, ask = asyncio.Event(), asyncio.Event(), memory.versions_of

    async def versions_of(run_ids: Any) -> Any:
        if failing.is_set():
            failed.set()
            raise wrong
        return await ask(run_ids)

    monkeypatch.setattr(memory, "versions_of", versions_of)
    gateway = await gateways(memory)
    run = await create_embedded(memory)
    async with looking(gateway.address, path_of(run)) as viewer:
        told = await viewer.some(1)
        failing.set()
        await until(failed.is_set)
        run = await write(memory, end_run(run))
        failing.clear()
        assert places(told + await viewer.all()) == await journal_of(memory, run)


async def test_stream_goes_on_without_gap_when_the_store_was_away(
    memory: Any, gateways: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = await gateways(memory)
    run = await write(memory, start_step(await create_embedded(memory)))
    before = len(await journal_of(memory, run))
    read, refused = memory.read_events, asyncio.Event()

    async def away(*_: Any, **__: Any) -> Any:
        refused.set()
        raise StoreUnavailable("away")

    async with looking(gateway.address, path_of(run)) as viewer:
        told = await viewer.some(before)
        monkeypatch.setattr(memory, "read_events", away)
        run = await write(memory, finish_step(run))
        await refused.wait()
        async with looking(gateway.address, path_of(run)) as late:
            monkeypatch.setattr(memory, "read_events", read)
            run = await write(memory, end_run(run))
            assert places(told + await viewer.all()) == await journal_of(memory, run)
            assert places(await late.all()) == await journal_of(memory, run)


async def test_run_that_is_pruned_while_it_is_watched_ends_with_a_problem(
    memory: Any, gateways: Gateways
) -> None:
    gateway = await gateways(memory)
    run = await create_embedded(memory)
    async with looking(gateway.address, path_of(run)) as viewer:
        await viewer.some(1)
        await _forget(memory, run)
        *_, last = await viewer.all()
    assert (last.kind, last.data["type"]) == ("problem", "urn:tenure:problem:run-not-found")


async def _forget(store: Any, run: RunSnapshot) -> None:
    del store._runs[run.run_id]
