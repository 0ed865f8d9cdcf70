"""A gateway put together: a store, a runner that changes runs for it, an application, a socket.

The runner executes nothing here. It brings what every process of a store does besides: it sends
callbacks and marks abandoned runs.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tenure.gateway.auth import Anonymous, is_loopback
from tenure.gateway.calls import GatewayState, Library, Limits, StoreWatch
from tenure.gateway.live.feed import Live
from tenure.gateway.metrics import Meters, StoreNumbers
from tenure.gateway.problems import NotSafe
from tenure.gateway.server import check_name, listen, new_app, serving
from tenure.gateway.wakeups import WakeupHub
from tenure.ports.store import Attended, RunStateStore, TokenStore
from tenure.runner import Runner
from tenure.system import SystemClock, presence
from tenure.workflow_file import WorkflowFile, read_workflow


class GatewayProcess:
    """``async with GatewayProcess(store, runner).open("127.0.0.1", 8080) as address: …``

    ``store`` and ``runner`` stay their owner's to close. Beyond this machine it serves only those
    who have a token, unless ``open_to_all`` says that this is not wanted. ``meters`` count requests
    and, if ``store`` is ``measured`` by them, what goes through it.
    """

    def __init__(
        self,
        store: RunStateStore,
        runner: Runner,
        *,
        limits: Limits = Limits(),
        open_to_all: bool = False,
        meters: Meters | None = None,
    ) -> None:
        self._store = store
        self._meters = meters or Meters()
        self._limits = limits
        self._open_to_all = open_to_all
        self._library: Library[WorkflowFile] = Library(read_workflow)
        self._runner = runner
        self.lets_in: str | None = None
        """Once it is open: who may do everything without a token, if anybody may."""

    @asynccontextmanager
    async def open(self, host: str, port: int) -> AsyncIterator[str]:
        """Serves while it is entered; the address it has. ``NotSafe``, ``CannotListen``."""
        check_name(host, port)
        door = await self._door(host)
        closing, clock = asyncio.Event(), asyncio.get_running_loop().time
        parts = GatewayState(
            store=self._store,
            desk=self._runner,
            read=self._library.read,
            now=SystemClock().now,
            presence=presence,
            watch=StoreWatch(self._store, clock),
            closing=closing,
            hearing=WakeupHub(self._store, closing),
            live=Live(self._store, clock),
            meters=self._meters,
            numbers=StoreNumbers(self._store, self._meters.registry, clock),
        )
        app = new_app(parts, clock, self._limits, door=door)
        listener = listen(host, port)
        try:
            async with serving(app, listener, self._limits, closing):
                yield _address_of(listener)
        finally:
            await parts.hearing.close()

    async def _door(self, host: str) -> Anonymous:
        if isinstance(self._store, Attended):
            raise NotSafe(
                "whoever asks a gateway before a gateway asks with that gateway's own token: name "
                f"the store behind {self._store.attended_by}"
            )
        known = await self._store.list_tokens() if isinstance(self._store, TokenStore) else []
        if self._open_to_all:
            self.lets_in = "whoever can reach it may do everything (--allow-anyone)"
            return Anonymous.OPEN
        if is_loopback(host):
            if not known:
                self.lets_in = "until there is one, whoever is on this machine may do everything"
            return Anonymous.HOME
        if not isinstance(self._store, TokenStore):
            raise NotSafe(
                f"{type(self._store).__name__} keeps no tokens, so this gateway may listen on "
                "127.0.0.1 only"
            )
        if not known:
            raise NotSafe(
                f"there are no tokens, and {host} can be reached from elsewhere: create one first "
                "(tenure token create NAME --role admin), listen on 127.0.0.1, or say that "
                "everybody may do everything (--allow-anyone)"
            )
        return Anonymous.SHUT


def _address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
