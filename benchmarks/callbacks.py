"""Callbacks from SQLite to receivers on this machine: how many a second, what 100,000 dead letters
cost, and what bad receivers cost the good."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from time import monotonic, perf_counter

import apsw
from msgspec.structs import replace

from benchmarks.callback_receivers import QUICK, VICES, receivers
from benchmarks.figures import Figure, typical
from benchmarks.workload import created, three_steps
from tenure.model.errors import TenureError
from tenure.model.outbox import GiveUp, Settlement
from tenure.model.retry_policy import RetryPolicy
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import DeliveryState
from tenure.model.update import NewRun
from tenure.notifiers.http import HttpSender, HttpSettings
from tenure.runtime.relay import Relay
from tenure.stores.sqlite import SQLiteStore
from tenure.system import new_update_id

AT_ONCE = 50
CALLBACKS = 2000
ROUNDS = 10
NEEDED_PER_SECOND = 5000
"""By a user with a thousand runs at once, five callbacks a second from each."""
DEAD = 100_000
LISTINGS = 200
HEALTHY, PER_SECOND = 300, 100
WAITING_AT_EACH_VICE = 20

_numbers = count()


def measure() -> list[Figure]:
    logging.getLogger("tenure").setLevel(logging.CRITICAL)  # dead letters are meant here
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [_throughput(folder), *_dead_letters(folder), *_vices(folder)]


# How many a second


def _throughput(folder: Path) -> Figure:
    rates: list[float] = []
    with receivers(QUICK) as process:
        for number in range(ROUNDS):
            path = folder / f"throughput-{number}.db"
            rates.append(asyncio.run(_delivered_per_second(path, process.urls[QUICK])))
    return Figure(
        name=f"callbacks from sqlite, {AT_ONCE} at a time, against what a user needs",
        unit="1/s",
        ours=typical(rates),
        limit=NEEDED_PER_SECOND,
        at_least=1.0,
    )


async def _delivered_per_second(path: Path, url: str) -> float:
    async with await SQLiteStore.open(path) as store:
        await _owe(store, url, CALLBACKS)
        async with _relay(store, concurrency=AT_ONCE, per_target=AT_ONCE) as relay:
            start = perf_counter()
            relay.open()
            if not await relay.flush(300):
                raise RuntimeError("callbacks are still waiting after five minutes")
            return CALLBACKS / (perf_counter() - start)


# Among many dead letters


def _dead_letters(folder: Path) -> Iterator[Figure]:
    few, many = folder / "few-dead.db", folder / "many-dead.db"
    with receivers(QUICK) as process:
        url = process.urls[QUICK]
        for path, times in ((few, 1), (many, DEAD // 100)):
            asyncio.run(_hundred_dead(path))
            _multiply_dead(path, times)
        spent = {few: 1e9, many: 1e9}
        for _ in range(3):
            for path in spent:
                rate = asyncio.run(_delivered_per_second(path, url))
                spent[path] = min(spent[path], 1e6 / rate)
    among = f"{DEAD:,} dead letters against 100"
    yield Figure(
        name=f"callbacks delivered among {among}",
        unit="µs",
        ours=spent[many],
        limit=spent[few],
        at_most=1.5,
    )
    for name, state in (("callbacks", None), ("dead letters", DeliveryState.DEAD)):
        figures = asyncio.run(_listing(few, many, state))
        yield Figure(
            name=f"list 50 {name}: {among}",
            unit="ms",
            ours=figures[many],
            limit=figures[few],
            at_most=1.5,
        )


async def _hundred_dead(path: Path) -> None:
    async with await SQLiteStore.open(path) as store:
        await _owe(store, "http://127.0.0.1:9/dead", 100)
        held = await store.claim_deliveries("bench", limit=100)
        gone = GiveUp("answered 410")
        await store.settle_deliveries([Settlement(each.id, "bench", gone) for each in held])


def _multiply_dead(path: Path, times: int) -> None:
    connection = apsw.Connection(str(path))
    names = [row[1] for row in connection.execute("pragma table_info(deliveries)")]
    chosen = {
        "number": "null",
        "id": "printf('dead-%06d-', copies.n) || t.id",
        "version": "t.version + copies.n",
    }
    connection.execute(
        f"insert into deliveries ({', '.join(names)}) "
        "with recursive copies(n) as (select 1 union all select n + 1 from copies where n < ?) "
        f"select {', '.join(chosen.get(name, f't.{name}') for name in names)} "
        "from copies cross join deliveries t where copies.n < ? order by copies.n",
        (times, times),
    )
    connection.execute("pragma wal_checkpoint(truncate)").fetchall()
    connection.close()


async def _listing(few: Path, many: Path, state: DeliveryState | None) -> dict[Path, float]:
    async with await SQLiteStore.open(few) as small, await SQLiteStore.open(many) as large:
        times: dict[SQLiteStore, list[float]] = {small: [], large: []}
        for _ in range(LISTINGS):
            for store, spent in times.items():
                start = perf_counter()
                await store.list_deliveries(state=state)
                spent.append(perf_counter() - start)
        return {store.path: typical(spent) * 1000 for store, spent in times.items()}


# Beside bad receivers


def _vices(folder: Path) -> Iterator[Figure]:
    calm: list[float] = []
    stormy: list[float] = []
    slowest: list[float] = []
    for number in range(5):
        for vices, p99s in (((), calm), (VICES, stormy)):
            path = folder / f"vices-{number}-{len(vices)}.db"
            times = _waits_of_healthy(path, vices)
            p99s.append(times[len(times) * 99 // 100] * 1000)
            if vices:
                slowest.append(times[-1])
    yield Figure(
        name=f"p99 of healthy callbacks, {len(VICES)} vices in play against none",
        unit="ms",
        ours=typical(stormy),
        limit=typical(calm),
        at_most=2.0,
    )
    yield Figure(
        name=f"slowest healthy callback, {len(VICES)} vices in play, against 2 s",
        unit="s",
        ours=max(slowest),
        limit=2.0,
        at_most=1.0,
    )


def _waits_of_healthy(path: Path, vices: tuple[str, ...]) -> list[float]:
    """From commit to arrival, in seconds, shortest first."""
    with receivers(QUICK) as healthy, receivers(*vices) as bad:
        committed = asyncio.run(_tell_steadily(path, healthy.urls[QUICK], list(bad.urls.values())))
        arrived = healthy.end()
    return sorted(arrived[each] - at for each, at in committed.items())


async def _tell_steadily(path: Path, healthy: str, bad: list[str]) -> dict[str, float]:
    """When each callback to the healthy one was durable; the bad ones are told all the while."""
    committed: dict[str, float] = {}
    async with await SQLiteStore.open(path) as store:
        for url in bad:
            await _owe(store, url, WAITING_AT_EACH_VICE)
        async with _relay(store) as relay:
            relay.open()
            await asyncio.sleep(0.5)
            begun = monotonic()
            runs = []
            for number in range(HEALTHY):
                await asyncio.sleep(max(begun + number / PER_SECOND - monotonic(), 0))
                new = _new_run(healthy)
                await store.create_run(new)
                committed[new.deliveries[0].id] = monotonic()
                relay.wake()
                runs.append(new.snapshot.run_id)
            if not await relay.flush(60, runs):
                raise RuntimeError("healthy callbacks are still waiting after a minute")
    return committed


# What all of them need


@asynccontextmanager
async def _relay(
    store: SQLiteStore, concurrency: int = 100, per_target: int = 10
) -> AsyncIterator[Relay]:
    sender = HttpSender(HttpSettings(allow_private=True, total_timeout=1.0))
    policy = RetryPolicy(attempts=1000, delay=1.0, jitter=0.2)
    relay = Relay(
        store,
        sender,
        policy,
        new_id=new_update_id,
        concurrency=concurrency,
        per_target=per_target,
    )
    try:
        yield relay
    finally:
        await relay.close(0)
        await sender.close()


async def _owe(store: SQLiteStore, url: str, callbacks: int) -> None:
    for first in range(0, callbacks, 500):
        batch = [_new_run(url) for _ in range(first, min(first + 500, callbacks))]
        for outcome in await store.update_runs(batch):
            if isinstance(outcome, TenureError):
                raise outcome


def _new_run(url: str) -> NewRun:
    target = CallbackTarget(name="hook", url=url)
    run = three_steps(f"callback-{next(_numbers):08}", hosts=("web1",))
    return created(replace(run, callbacks=(target,)))
