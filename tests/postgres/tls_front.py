"""TLS in front of the server, as proxies in the cloud do it: the server of the tests has none.

It puts as much into a record as TLS allows. (So does PostgreSQL itself, from version 17 on, with
rows that are larger than its buffer.)
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Coroutine
from contextlib import closing, suppress
from typing import Self

_SSL, _GSS = 80877103, 80877104
_REQUEST = struct.Struct("!ii")
_SMALL = 5000
_A_MOMENT = 0.01


class TlsFront:
    def __init__(self, server_port: int, context: ssl.SSLContext) -> None:
        self._server_port = server_port
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exit_details: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._begin(self._welcome(reader, writer))

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        code = 0
        while code != _SSL:
            _, code = _REQUEST.unpack(await reader.readexactly(_REQUEST.size))
            assert code in (_SSL, _GSS), "it would have talked in the clear"
            writer.write(b"S" if code == _SSL else b"N")
        try:
            await writer.start_tls(self._context)
        except (ssl.SSLError, ConnectionError):
            writer.close()  # the client does not trust us
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._begin(_pass_on(reader, back))
        self._begin(_pass_on_in_records(there, writer))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.add(asyncio.create_task(work))


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with closing(target), suppress(ConnectionError, ssl.SSLError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()


async def _pass_on_in_records(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """A small one, and a moment later the rest of what there is in large ones: of the last of these
    a part fits into what has room."""
    with closing(target), suppress(ConnectionError, ssl.SSLError):
        while data := await source.read(65536):
            with suppress(TimeoutError):
                async with asyncio.timeout(_A_MOMENT):
                    while len(data) > _SMALL and (more := await source.read(65536)):
                        data += more
            target.write(data[:_SMALL])
            await target.drain()
            if len(data) > _SMALL:
                await asyncio.sleep(_A_MOMENT)
                target.write(data[_SMALL:])
                await target.drain()
