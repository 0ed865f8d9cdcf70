"""A pooler in transaction mode, as strict as one can be.

Each transaction of a client goes to a server connection chosen at random, so that whoever relies
on anything a connection remembers is found out: prepared statements, session settings, temporary
tables, locks of a session. Unlike its grown-up relatives it does not even carry the usual settings
from one connection to the next, and gives every one another time zone to begin with.

It reads the protocol only as far as it must: where messages begin and end, and when a transaction
is over (``ReadyForQuery``, once for each ``Sync`` or ``Query``).
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Coroutine
from contextlib import closing, suppress
from itertools import cycle
from threading import Thread
from typing import Any, Self

_SSL, _GSS, _CANCEL, _VERSION_3 = 80877103, 80877104, 80877102, 196608
_END_OF_REQUEST = b"SQ"
NAME = "pooler"
"""What the server knows its connections by: they are shared, and no test may end them."""
_ZONES = ("Asia/Kolkata", "America/St_Johns", "Pacific/Chatham", "UTC")


async def _packet(reader: asyncio.StreamReader) -> bytes:
    """A message that has no type: the first of a connection."""
    (length,) = struct.unpack("!i", await reader.readexactly(4))
    return await reader.readexactly(length - 4)


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Its type, and the whole of it."""
    head = await reader.readexactly(5)
    (length,) = struct.unpack("!i", head[1:])
    return head[:1], head + await reader.readexactly(length - 4)


def _typed(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


class _ServerConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.key = b""
        self.greeting = b""
        """What it says of itself before it is ready."""

    @classmethod
    async def open(cls, port: int, startup: bytes, zone: str) -> Self:
        self = cls(*await asyncio.open_connection("127.0.0.1", port))
        self.writer.write(struct.pack("!i", len(startup) + 4) + startup)
        await self._until_ready()
        settings = f"set time zone '{zone}'; set application_name = '{NAME}'"
        self.writer.write(_typed(b"Q", settings.encode() + b"\0"))
        await self._until_ready()
        return self

    async def _until_ready(self) -> None:
        kind = b""
        while kind != b"Z":
            kind, data = await _message(self.reader)
            assert kind != b"E", data
            if kind == b"K":
                self.key = data[5:]
            elif kind in b"RS":
                self.greeting += data


class Pooler:
    """In a thread of its own, for as long as it is entered."""

    def __init__(self, server_port: int, size: int = 4) -> None:
        self._server_port = server_port
        self._size = size
        self._random = random.Random(5)
        self._zones = cycle(_ZONES)
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._pools: dict[bytes, asyncio.Queue[_ServerConnection | None]] = {}
        self._linked: dict[bytes, _ServerConnection] = {}
        """By the key of the client."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.handed_over = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self.port: int = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(self, *exit_details: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _close(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pool in self._pools.values():
            while not pool.empty():
                connection = pool.get_nowait()
                if connection is not None:
                    connection.writer.close()
        await asyncio.sleep(0)  # transports end in the loop's next round

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._begin(self._welcome(reader, writer))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with (
            closing(writer),
            suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError),
        ):
            packet = await _packet(reader)
            (code,) = struct.unpack("!i", packet[:4])
            while code in (_SSL, _GSS):
                writer.write(b"N")
                packet = await _packet(reader)
                (code,) = struct.unpack("!i", packet[:4])
            if code == _CANCEL:
                await self._cancel(packet[4:])
            else:
                assert code == _VERSION_3, code
                await self._serve(packet, reader, writer)

    async def _cancel(self, key: bytes) -> None:
        connection = self._linked.get(key)
        if connection is None:
            return
        _, line = await asyncio.open_connection("127.0.0.1", self._server_port)
        body = struct.pack("!i", _CANCEL) + connection.key
        line.write(struct.pack("!i", len(body) + 4) + body)
        await line.drain()
        line.close()

    async def _serve(
        self, startup: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        key = self._random.randbytes(8)
        connection = await self._take(startup)
        writer.write(connection.greeting + _typed(b"K", key) + _typed(b"Z", b"I"))
        self._pools[startup].put_nowait(connection)
        asked: asyncio.Future[tuple[bytes, bytes]] = asyncio.ensure_future(_message(reader))
        while True:
            kind, data = await asked
            if kind == b"X":
                return
            connection = self._linked[key] = await self._take(startup)
            self.handed_over += 1
            clean = False
            try:
                asked = await _Transaction(connection, reader, writer).pass_on(kind, data)
                clean = True
            finally:
                del self._linked[key]
                if not clean:  # whatever it was in the middle of ends with it
                    connection.writer.close()
                self._pools[startup].put_nowait(connection if clean else None)

    async def _take(self, startup: bytes) -> _ServerConnection:
        """Any one of those that are free."""
        pool = self._pools.get(startup)
        if pool is None:
            pool = self._pools[startup] = asyncio.Queue()
            for _ in range(self._size):
                pool.put_nowait(None)
        for _ in range(self._random.randrange(max(pool.qsize(), 1))):
            pool.put_nowait(pool.get_nowait())
        connection = await pool.get()
        if connection is None:
            zone = next(self._zones)
            connection = await _ServerConnection.open(self._server_port, startup, zone)
        return connection


class _Transaction:
    """What passes between a client and the server connection it was given, to the end."""

    def __init__(
        self,
        connection: _ServerConnection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._connection = connection
        self._reader = reader
        self._writer = writer
        self._answers_due = 0
        self._request_open = False

    async def pass_on(self, kind: bytes, data: bytes) -> asyncio.Future[tuple[bytes, bytes]]:
        """What the client says next, when it does."""
        self._to_server(kind, data)
        asked = asyncio.ensure_future(_message(self._reader))
        answered = asyncio.ensure_future(_message(self._connection.reader))
        try:
            while True:
                await asyncio.wait([asked, answered], return_when=asyncio.FIRST_COMPLETED)
                if answered.done():
                    if self._to_client(*answered.result()):
                        return asked
                    answered = asyncio.ensure_future(_message(self._connection.reader))
                elif asked.done():
                    self._to_server(*asked.result())
                    asked = asyncio.ensure_future(_message(self._reader))
        except BaseException:
            asked.cancel()
            answered.cancel()
            await asyncio.gather(asked, answered, return_exceptions=True)
            raise

    def _to_server(self, kind: bytes, data: bytes) -> None:
        self._request_open = kind not in _END_OF_REQUEST
        if not self._request_open:
            self._answers_due += 1
        self._connection.writer.write(data)

    def _to_client(self, kind: bytes, data: bytes) -> bool:
        """Whether the transaction is over."""
        self._writer.write(data)
        if kind != b"Z":
            return False
        self._answers_due -= 1
        return data[5:] == b"I" and not self._answers_due and not self._request_open
