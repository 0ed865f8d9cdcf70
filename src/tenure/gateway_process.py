"""Puts a gateway together: a store, a runner, the HTTP application and its socket.

The runner executes no runs here: it writes for the gateway, sends callbacks and marks abandoned
runs.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tenure.gateway.auth import is_loopback
from tenure.gateway.calls import GatewayState, Limits, ParsedWorkflows, StoreWatch
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

    The caller closes ``store`` and ``runner``. Every request needs a token, unless ``no_token``
    serves this machine without. ``meters`` count requests and, if ``store`` is ``measured`` by
    them, its calls.
    """

    def __init__(
        self,
        store: RunStateStore,
        runner: Runner,
        *,
        limits: Limits = Limits(),
        no_token: bool = False,
        meters: Meters | None = None,
    ) -> None:
        self._store = store
        self._meters = meters or Meters()
        self._limits = limits
        self._no_token = no_token
        self._library: ParsedWorkflows[WorkflowFile] = ParsedWorkflows(read_workflow)
        self._runner = runner

    @asynccontextmanager
    async def open(self, host: str, port: int) -> AsyncIterator[str]:
        """Serve within the context; yields the address. Raises ``NotSafe``, ``CannotListen``."""
        check_name(host, port)
        self._check_safe(host)
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
        app = new_app(parts, clock, self._limits, no_token=self._no_token)
        listener = listen(host, port, self._limits)
        try:
            async with serving(app, listener, self._limits, closing):
                yield _address_of(listener)
        finally:
            await parts.hearing.close()

    def _check_safe(self, host: str) -> None:
        if isinstance(self._store, Attended):
            raise NotSafe(
                "a gateway cannot use another gateway as its store, since all requests would have "
                f"the token of the first: name the store behind {self._store.attended_by}"
            )
        if self._no_token and not is_loopback(host):
            raise NotSafe(
                f"{host} can be reached from elsewhere: without tokens (--no-token) a gateway "
                "listens on 127.0.0.1 only"
            )
        if not self._no_token and not isinstance(self._store, TokenStore):
            raise NotSafe(
                f"{type(self._store).__name__} keeps no tokens: its gateway serves this machine "
                "only, with --no-token"
            )


def _address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
