"""A live gateway for many tests: in a thread of its own, with a real socket before it, and behind
it whichever store a test brings."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

import tenure
from tenure.client import HttpStore
from tenure.gatehouse import Gatehouse
from tenure.gateway.admission import Door
from tenure.gateway.app import new_app
from tenure.gateway.hearing import Hearing
from tenure.gateway.live.hub import Live
from tenure.gateway.metrics.census import StoreNumbers
from tenure.gateway.metrics.meters import Meters
from tenure.gateway.parts import Limits, Parts
from tenure.gateway.queues import QueuesOfRuns
from tenure.gateway.server import listen, serving
from tenure.gateway.showing import Pages
from tenure.gateway.watching import StoreWatch
from tenure.ports.marks import RunMarks
from tenure.stores.memory import InMemoryStore
from tenure.system import SystemClock, presence
from tenure.workflow_file import read_workflow

ANY_RATE = Limits(rate=0)
T = TypeVar("T")
OpenStore = Callable[[], AbstractAsyncContextManager[Any]]


@asynccontextmanager
async def gateway(store: Any, port: int = 0) -> AsyncIterator[str]:
    """One for this test alone, in its own event loop; the address it has. Its runner is not opened:
    nothing happens there that nobody asked for."""
    runner = tenure.Runner(store)
    try:
        async with Gatehouse(store, runner, limits=ANY_RATE).open("127.0.0.1", port) as address:
            yield address
    finally:
        await runner.close()


class SharedGateway:
    """A server takes a while to begin and to end, and most tests are about something else."""

    def __init__(self) -> None:
        self._began = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self.address = ""

    def __enter__(self) -> SharedGateway:
        self._thread.start()
        assert self._began.wait(30)
        return self

    def __exit__(self, *exit_details: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        closing = asyncio.Event()
        nothing, meters = InMemoryStore(), Meters()
        self._parts = Parts(
            store=nothing,
            desk=tenure.Runner(nothing),
            read=read_workflow,
            now=SystemClock().now,
            presence=presence,
            watch=StoreWatch(nothing, self._loop.time),
            closing=closing,
            hearing=Hearing(nothing, closing),
            queues=QueuesOfRuns(nothing),
            live=Live(nothing, self._loop.time),
            meters=meters,
            numbers=StoreNumbers(nothing, meters.registry, self._loop.time),
        )
        app = new_app(self._parts, self._loop.time, ANY_RATE, door=Door.HOME)
        listener = listen("127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with serving(app, listener, ANY_RATE, closing):
            self._began.set()
            await self._ended.wait()

    @asynccontextmanager
    async def before(self, opened: OpenStore) -> AsyncIterator[HttpStore]:
        """What stands before it, as a store."""
        kept = opened()
        store = self._parts.store = await self._there(kept.__aenter__())
        self._parts.marks = store if isinstance(store, RunMarks) else None
        self._parts.pages = Pages()
        try:
            async with HttpStore(self.address) as remote:
                yield remote
        finally:
            await self._there(kept.__aexit__(None, None, None))

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
