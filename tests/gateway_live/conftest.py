"""A gateway in this process on a loopback address, looked at by real connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

import tenure
from tenure.gateway.calls import GatewayState, Limits, Operations, StoreWatch
from tenure.gateway.live.feed import Live
from tenure.gateway.live.streams import Patience
from tenure.gateway.metrics import Meters, StoreNumbers
from tenure.gateway.server import listen, new_app, serving
from tenure.gateway.wakeups import WakeupHub
from tenure.ports.leases import Presence
from tests.gateway_live.viewers import SOON
from tests.postgres.database import TestDatabase

OFTEN = 0.01


class Gateway:
    """``stop`` ends it as SIGTERM would."""

    def __init__(
        self, store: Any, patience: Patience = Patience(), meters: Meters | None = None
    ) -> None:
        clock, closing = asyncio.get_running_loop().time, asyncio.Event()
        self.live = Live(store, clock, every=OFTEN)
        self.meters = meters or Meters()
        self.parts = GatewayState(
            store=store,
            desk=cast(Operations, tenure.Runner(store)),
            read=tenure.workflow_file.read_workflow,
            now=lambda: datetime.now(UTC),
            presence=lambda _: Presence.UNSEEN,
            watch=StoreWatch(store, clock),
            closing=closing,
            hearing=WakeupHub(store, closing),
            live=self.live,
            meters=self.meters,
            numbers=StoreNumbers(store, self.meters.registry, clock),
            patience=patience,
        )
        self.address = ""
        self._limits = Limits(rate=0)
        self._clock = clock
        self._serving = AsyncExitStack()

    async def start(self) -> None:
        listener = listen("127.0.0.1", 0)
        app = new_app(self.parts, self._clock, self._limits, no_token=True)
        server = serving(app, listener, self._limits, self.parts.closing)
        await self._serving.enter_async_context(server)
        self.address = "http://{}:{}".format(*listener.getsockname())

    async def stop(self) -> None:
        await self._serving.aclose()

    async def until_idle(self) -> None:
        await until(lambda: self.live.idle)


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON):
        while not happened():
            await asyncio.sleep(OFTEN)


@pytest.fixture(
    params=[
        "memory",
        pytest.param("sqlite", marks=pytest.mark.slow),
        pytest.param("postgres", marks=pytest.mark.slow),
    ]
)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        database: TestDatabase = request.getfixturevalue("postgres_going")
        database.empty()
        return database.url
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Any]:
    async with tenure.open_store(store_url) as opened:
        yield opened


@pytest.fixture
async def memory() -> AsyncIterator[Any]:
    async with tenure.open_store("memory:") as opened:
        yield opened


@pytest.fixture
async def gateways() -> AsyncIterator[Callable[..., Any]]:
    """Starts them, and stops those that are left."""
    started: list[Gateway] = []

    async def start(store: Any, **settings: Any) -> Gateway:
        gateway = Gateway(store, **settings)
        await gateway.start()
        started.append(gateway)
        return gateway

    yield start
    for gateway in started:
        await gateway.stop()
