"""How a connection comes about: name, address, socket, TLS.

If a name has several addresses they are tried in turn, the next one when one is not reached within
a quarter of a second: a host whose IPv6 leads nowhere costs that and no more.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import cache

from aiohappyeyeballs import AddrInfoType, pop_addr_infos_interleave, start_connection

from tenure.notifiers.http.connection import Connection
from tenure.notifiers.http.failures import NoConnection
from tenure.notifiers.http.guard import Judge, guarded_sockets
from tenure.notifiers.http.names import Names
from tenure.notifiers.http.settings import HttpSettings
from tenure.notifiers.http.target import Origin

_NEXT_AFTER = 0.25
_FAREWELL = 0.1
"""For the end of a TLS connection. Many receivers never answer the goodbye; asyncio would keep the
socket for half a minute."""


class Opening:
    """Connections to addresses that pass the judge."""

    def __init__(
        self, settings: HttpSettings, names: Names, judge: Judge, tls: ssl.SSLContext
    ) -> None:
        self._settings = settings
        self._names = names
        self._new_socket = guarded_sockets(judge)
        self._tls = tls

    async def __call__(self, origin: Origin) -> Connection:
        """An ``OSError`` says why there is none."""
        infos = [_info(address, origin.port) for address in await self._names(origin.host)]
        while True:
            try:
                return await self._reach(origin, infos)
            except OSError:
                pop_addr_infos_interleave(infos, 1)
                if not infos:
                    raise

    async def _reach(self, origin: Origin, infos: list[AddrInfoType]) -> Connection:
        try:
            async with asyncio.timeout(self._settings.connect_timeout):
                reached = await start_connection(
                    infos, happy_eyeballs_delay=_NEXT_AFTER, socket_factory=self._new_socket
                )
                return await self._talk_over(reached, origin)
        except TimeoutError as error:
            if error.errno:  # the system's, and not ours
                raise
            raise NoConnection from error

    async def _talk_over(self, reached: socket.socket, origin: Origin) -> Connection:
        loop = asyncio.get_running_loop()
        if origin.scheme == "http":
            _, connection = await loop.create_connection(self._new, sock=reached)
            return connection
        _, connection = await loop.create_connection(
            self._new,
            sock=reached,
            ssl=self._tls,
            server_hostname=_as_certified(origin.host),
            ssl_shutdown_timeout=_FAREWELL,
        )
        return connection

    def _new(self) -> Connection:
        return Connection(self._settings.response_bytes, self._settings.read_timeout)


@cache
def system_certificates() -> ssl.SSLContext:
    """Read once, which takes a while: not in a loop that has other things to do."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _as_certified(host: str) -> str:
    """Certificates know neither the dot at the end of a name nor the zone of an address."""
    return host.partition("%")[0].rstrip(".")


def _info(address: str, port: int) -> AddrInfoType:
    kind, protocol = socket.SOCK_STREAM, socket.IPPROTO_TCP
    if ":" in address:
        return (socket.AF_INET6, kind, protocol, "", (address, port, 0, 0))
    return (socket.AF_INET, kind, protocol, "", (address, port))
