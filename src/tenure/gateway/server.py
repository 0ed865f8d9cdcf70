"""The gateway as a server: listening, request log and counters, the ASGI app, graceful shutdown."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn
from prometheus_client import Counter
from starlette.routing import Route as Path
from starlette.routing import Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenure.aio import about, pause
from tenure.gateway.answers import LargeAnswers
from tenure.gateway.auth import Admission, Rates, TokenBook
from tenure.gateway.calls import GatewayState, Limits, Route
from tenure.gateway.live.streams import SSE_MEDIA_TYPE
from tenure.gateway.metrics import Meters
from tenure.gateway.openapi import encoded
from tenure.gateway.problems import CannotListen
from tenure.gateway.routes import ROUTES
from tenure.gateway.routing import CALLER, CREATED_RUN_ID, Intake, Resource, nothing_here

_BACKLOG = 1024
_STOP_POLL_INTERVAL_S = 0.01
_STALLED = 3
"""Times the seconds for one piece, after which the system ends a connection that takes nothing."""


class Server(uvicorn.Server):
    """uvicorn without signal handlers and its own event loop, which are the command's."""

    def __init__(self, app: Any, limits: Limits, closing: asyncio.Event) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=limits.connections + 1,  # the first that is refused
                timeout_keep_alive=limits.idle_seconds,
                timeout_graceful_shutdown=limits.drain_seconds,
            )
        )
        self._closing = closing

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def run_until(self, listener: socket.socket, stop: asyncio.Event) -> None:
        """Serve until ``stop``; then accept nothing more, end streams, and wait for answers in
        progress."""
        serving = asyncio.create_task(self.serve([listener]))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            self._closing.set()
            self.should_exit = True
            await serving


@asynccontextmanager
async def serving(
    app: Any, listener: socket.socket, limits: Limits, closing: asyncio.Event
) -> AsyncIterator[None]:
    """Serve while the context is entered."""
    server, stop = Server(app, limits, closing), asyncio.Event()
    task = asyncio.create_task(server.run_until(listener, stop))
    try:
        while not server.started and not task.done():
            await pause(_STOP_POLL_INTERVAL_S)
        yield
    finally:
        stop.set()
        await task


def check_name(host: str, port: int) -> None:
    """``CannotListen`` for a host name that cannot be resolved."""
    with _said(host, port):
        _found(host, port)


def listen(host: str, port: int, limits: Limits = Limits()) -> socket.socket:
    """A listening socket; port zero: any free port. ``CannotListen``."""
    with _said(host, port):
        family, kind, protocol, _, address = _found(host, port)
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # not on macOS
                # Of a client that takes nothing even closing waits for what is on its way.
                stalled_ms = int(limits.send_seconds * _STALLED * 1000)
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stalled_ms)
            listener.bind(address)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
        return listener


def _found(host: str, port: int) -> Any:
    flags = socket.AI_PASSIVE
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)[0]


@contextmanager
def _said(host: str, port: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise CannotListen(
            f"cannot listen on {host}:{port}: {reason}; choose another with --listen"
        ) from error


# Requests are counted and logged by their route, never by their path: so there are few time series,
# and nothing of a query or a header in any log.


_log = logging.getLogger("tenure.gateway.requests")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_STREAM = SSE_MEDIA_TYPE.encode()


class Counted:
    """Wraps an application to count and log its requests. ``clock`` counts seconds."""

    def __init__(
        self, app: ASGIApp, route: str, meters: Meters, clock: Callable[[], float]
    ) -> None:
        self._app = app
        self._route = route
        self._meters = meters
        self._clock = clock
        self._answered: dict[tuple[str, int], Counter] = {}
        self._seconds = meters.request_seconds.labels(route)
        self._streams = meters.streams.labels(route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = self._clock()
        status, streams = 0, False

        async def noted(message: Message) -> None:
            nonlocal status, streams
            if message["type"] == "http.response.start":
                status = message["status"]
                streams = _is_stream(message)
                if streams:
                    self._streams.inc()
            await send(message)

        try:
            with about(scope.get("path_params", {}).get("run_id")):
                await self._app(scope, receive, noted)
        finally:
            if streams:
                self._streams.dec()
            self._note(scope, status, self._clock() - began, streams=streams)

    def _note(self, scope: Scope, status: int, seconds: float, *, streams: bool) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        answered = self._answered.get((method, status))
        if answered is None:
            answered = self._meters.requests.labels(method, self._route, status or "none")
            self._answered[method, status] = answered
        answered.inc()
        if not streams:
            self._seconds.observe(seconds)
        if _log.isEnabledFor(logging.INFO):
            facts = {
                "method": method,
                "route": self._route,
                "status": status,
                "seconds": round(seconds, 6),
                "caller": scope.get(CALLER),
                "run_id": scope.get("path_params", {}).get("run_id") or scope.get(CREATED_RUN_ID),
            }
            _log.info("%s %s: %d", method, self._route, status, extra={"facts": facts})


def _is_stream(start: Message) -> bool:
    """A stream says so in the first header."""
    headers = start["headers"]
    return bool(headers) and headers[0][1].startswith(_STREAM)


# The ASGI application.


def new_app(
    parts: GatewayState,
    clock: Callable[[], float],
    limits: Limits = Limits(),
    *,
    no_token: bool = False,
    routes: Sequence[Route[Any, Any]] = ROUTES,
) -> Router:
    """The gateway as an ASGI application. ``clock`` counts seconds; with ``no_token`` clients on
    this machine need none."""
    parts.document, parts.limits = encoded(routes), limits
    book = TokenBook(parts.store, parts.now, clock)
    rates = Rates(limits.rate, limits.burst, clock)
    admission, intake = Admission(book, rates, no_token=no_token), Intake(limits)
    large = LargeAnswers(limits.large_answers, limits.large_answers_of_one)

    def counted(app: ASGIApp, route: str) -> Counted:
        return Counted(app, route, parts.meters, clock)

    by_path: dict[str, list[Route[Any, Any]]] = {}
    for route in routes:
        by_path.setdefault(route.path, []).append(route)
    paths = [
        Path(of_it[0].pattern, counted(Resource(of_it, parts, admission, intake, large), path))
        for path, of_it in by_path.items()
    ]
    return Router(paths, redirect_slashes=False, default=counted(nothing_here, "none"))
