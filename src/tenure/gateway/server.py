"""The gateway as a server: listening, and ending without cutting off who is being answered."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn

from tenure.gateway.errors import CannotListen
from tenure.gateway.parts import Limits
from tenure.runtime.waiting import pause

_BACKLOG = 1024
_A_MOMENT = 0.01


class Server(uvicorn.Server):
    """Signals are the command's business, and so is the event loop."""

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
        """Serve until ``stop``; then take nothing more, let streams end, and wait for answers that
        are under way."""
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
    """For who has something else to do meanwhile."""
    server, stop = Server(app, limits, closing), asyncio.Event()
    task = asyncio.create_task(server.run_until(listener, stop))
    try:
        while not server.started and not task.done():
            await pause(_A_MOMENT)
        yield
    finally:
        stop.set()
        await task


def check_name(host: str, port: int) -> None:
    """``CannotListen`` for a host that nobody knows, before anything else is said about it."""
    with _said(host, port):
        _found(host, port)


def listen(host: str, port: int) -> socket.socket:
    """``CannotListen``. Port zero: any that is free."""
    with _said(host, port):
        family, kind, protocol, _, address = _found(host, port)
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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
