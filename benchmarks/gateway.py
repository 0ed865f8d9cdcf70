"""One gateway process: how fast it shows a run, how little that suffers while runs pass through
its store, and how soon an event reaches everybody who looks."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import psycopg
from tests.postgres.server import Server

from benchmarks.figures import Figure
from benchmarks.http_load import load
from benchmarks.postgres_server import durable_server, fresh_store
from benchmarks.workload import created, three_steps, updates_of
from tenure.model.update import Effect, Event, Fencing, Update
from tenure.stores.postgres import PostgresStore

ROUNDS = 3
RUNS = 100
RATE = 500
VIEWERS = 200
EVENTS = 30
PYTHON = (sys.executable, "-m")


def measure() -> list[Figure]:
    with durable_server() as server:
        return asyncio.run(_measure(server))


async def _measure(server: Server) -> list[Figure]:
    async with await fresh_store(server, "gateway") as store:
        url = server.url("gateway", prepared="yes")
        run_ids = await _some_runs(store)
        paths = [f"/v1/runs/{run_id}" for run_id in run_ids]
        with _gateway(url) as address:
            await asyncio.sleep(0.5)
            shown = _shown(address, paths)
            told = await _told(store, address)
            quiet, busy, passed = _queried(url, server, address, paths)
    return [
        Figure(
            name="GET of a run, against the framework with a constant",
            unit="requests/s",
            ours=shown[0],
            limit=shown[1],
            at_least=0.4,
        ),
        Figure(
            name="GET of a run while runs pass through the store, p99",
            unit="s",
            ours=busy,
            limit=quiet,
            at_most=3.0,
        ),
        Figure(
            name="runs that passed meanwhile",
            unit="runs/s",
            ours=passed,
            limit=RATE,
            at_least=0.95,
        ),
        Figure(
            name="an event reaches the last of 200 viewers, the slowest of 30",
            unit="s",
            ours=told,
            limit=0.25,
            at_most=1.0,
        ),
    ]


async def _some_runs(store: PostgresStore) -> list[str]:
    run_ids = [f"shown-run-{number:04}" for number in range(RUNS)]
    await store.update_runs([created(three_steps(run_id)) for run_id in run_ids])
    for moment in zip(*(updates_of(three_steps(run_id)) for run_id in run_ids), strict=True):
        await store.update_runs(moment)
    return run_ids


@contextmanager
def _process(*command: str) -> Iterator[Any]:
    """With the first line it said."""
    environment = {**os.environ, "TENURE_GATEWAY_RATE": "0"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline()
        finally:
            process.send_signal(signal.SIGTERM)


@contextmanager
def _gateway(url: str) -> Iterator[str]:
    command = str(Path(sys.executable).with_name("tenure"))
    with _process(
        command, "gateway", "--store", url, "--listen", "127.0.0.1:0", "--json", "--no-token"
    ) as said:
        yield json.loads(said)["address"]


def _shown(address: str, paths: list[str]) -> tuple[float, float]:
    """In turns, so that what else the machine does troubles both."""
    with urlopen(address + paths[0]) as answer:
        size = len(answer.read())
    ours, limit = [], []
    with _process(*PYTHON, "benchmarks.constant_server", str(size)) as said:
        constant = json.loads(said)["address"]
        for _ in range(ROUNDS):
            ours.append(load(address, paths).rate)
            limit.append(load(constant, paths).rate)
    return median(ours), median(limit)


def _queried(
    url: str, server: Server, address: str, paths: list[str]
) -> tuple[float, float, float]:
    """The latency of a hundred questions a second."""
    few: dict[str, Any] = {"connections": 2, "seconds": 5.0, "pause": 0.02}
    quiet = load(address, paths, **few).latency[98]
    with _process(*PYTHON, "benchmarks.passing_runs", url, str(RATE)):
        before, began = _ended(server), perf_counter()
        busy = load(address, paths, **few).latency[98]
        passed = (_ended(server) - before) / (perf_counter() - began)
    return quiet, busy, passed


def _ended(server: Server) -> int:
    with psycopg.connect(server.url("gateway")) as connection:
        row = connection.execute("select count(finished_at) from tenure.runs").fetchone()
    return int(row[0]) if row else 0


class Viewer(asyncio.Protocol):
    """Knows when it last heard of each event."""

    def __init__(self, path: str) -> None:
        self._request = (
            f"GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n"
        )
        self.heard: list[float] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(self._request.encode())

    def data_received(self, data: bytes) -> None:
        self.heard += [perf_counter()] * data.count(b"\ndata: ")


async def _told(store: PostgresStore, address: str) -> float:
    host, port = urlsplit(address).netloc.split(":")
    loop = asyncio.get_running_loop()
    run = three_steps("watched-run-1")
    await store.create_run(created(run))
    before = len(await store.read_events(run.run_id))
    viewers: list[Viewer] = []
    new_viewer = partial(Viewer, f"/v1/runs/{run.run_id}/events")
    for _ in range(VIEWERS):
        _, viewer = await loop.create_connection(new_viewer, host, int(port))
        viewers.append(viewer)
    sent: list[float] = []
    for number in range(EVENTS):
        await _until_heard(viewers, before + number)
        await asyncio.sleep(0.037)
        sent.append(perf_counter())
        await store.update_run(_says(run.run_id, number + 1))
    await _until_heard(viewers, before + EVENTS)
    for viewer in viewers:
        viewer.transport.close()
    took = [
        max(viewer.heard[before + number] for viewer in viewers) - sent[number]
        for number in range(EVENTS)
    ]
    return max(took)


async def _until_heard(viewers: list[Viewer], number: int) -> None:
    while any(len(viewer.heard) < number for viewer in viewers):
        await asyncio.sleep(0.002)


def _says(run_id: str, version: int) -> Update:
    return Update(
        run_id=run_id,
        update_id=f"says-{version}",
        base_version=version,
        lease=Fencing("bench-owner", 1),
        effect=Effect(events=(Event(type="run.note", message="something happened"),)),
    )
