"""A live gateway for many tests, with a real socket before it, and behind it whichever store a test
brings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import tenure
from tenure.client import HttpStore
from tenure.gateway.calls import GatewayState, Limits, StoreWatch
from tenure.gateway.live.feed import Live
from tenure.gateway.metrics import Meters, StoreNumbers
from tenure.gateway.server import listen, new_app, serving
from tenure.gateway.wakeups import WakeupHub
from tenure.gateway_process import GatewayProcess
from tenure.stores.memory import InMemoryStore
from tenure.system import SystemClock, presence
from tenure.workflow_file import read_workflow

ANY_RATE = Limits(rate=0)
OpenStore = Callable[[], AbstractAsyncContextManager[Any]]


@asynccontextmanager
async def gateway(store: Any, port: int = 0) -> AsyncIterator[str]:
    """One for this test alone, in its own event loop; the address it has. Its runner is not opened:
    nothing happens there that nobody asked for."""
    runner = tenure.Runner(store)
    try:
        async with GatewayProcess(store, runner, limits=ANY_RATE, no_token=True).open(
            "127.0.0.1", port
        ) as address:
            yield address
    finally:
        await runner.close()


class SharedGateway:
    """A server takes a while to begin and to end, and most tests are about something else: one for
    all of them, in the loop in which they run. (In a thread of its own it would have to wait for
    the test's thread, and the test for it, a thousand times.)"""

    def __init__(self, parts: GatewayState, remote: HttpStore) -> None:
        self._parts = parts
        self._remote = remote

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[SharedGateway]:
        time, closing = asyncio.get_running_loop().time, asyncio.Event()
        nothing, meters = InMemoryStore(), Meters()
        parts = GatewayState(
            store=nothing,
            desk=tenure.Runner(nothing),
            read=read_workflow,
            now=SystemClock().now,
            presence=presence,
            watch=StoreWatch(nothing, time),
            closing=closing,
            hearing=WakeupHub(nothing, closing),
            live=Live(nothing, time),
            meters=meters,
            numbers=StoreNumbers(nothing, meters.registry, time),
        )
        app, listener = new_app(parts, time, ANY_RATE, no_token=True), listen("127.0.0.1", 0)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with serving(app, listener, ANY_RATE, closing), HttpStore(address) as remote:
            yield cls(parts, remote)

    @asynccontextmanager
    async def before(self, opened: OpenStore) -> AsyncIterator[HttpStore]:
        """What stands before it, as a store."""
        async with opened() as store:
            self._parts.store = store
            yield self._remote
