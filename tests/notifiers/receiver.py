"""A receiver of callbacks on this machine, with one path per vice, that remembers what it got.

    async with Receiver() as receiver:
        … send to receiver.url("ok"), receiver.url("hang"), receiver.url("503?after=7") …
        [first] = await receiver.got(1)

Written on bare streams: a server library would not misbehave on demand.

    ok              200 and a short body; the connection stays open for the next request
    200 … 599       that status; ``?after=`` adds a Retry-After, ``?body=`` a body
    301             to ``inward`` on this very receiver; ``?to=`` leads elsewhere
    turns           the statuses of ``?of=503,200`` one after another, the last one for ever
    flaky           503 or 200, by the luck of ``?seed=``
    gate            200 once the test has set ``receiver.gate``
    hang            takes the request and says nothing
    trickle-headers one byte of an answer's head now and then, without end
    trickle-body    200 at once, then one byte of the body now and then, without end
    endless         200 at once, then a body as fast as it is taken, without end
    gzip-bomb       200 (``?status=``) and a small body that would unpack to 64 MiB
    reset           takes the request and resets the connection
    drop            takes the request and closes the connection
    garbage         answers something that is not HTTP
    raw             answers the bytes of ``?hex=`` and closes the connection
    cookie          200 with a cookie
    echo            400 and everything the request held
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import ssl
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from http import HTTPStatus
from socket import SO_LINGER, SOL_SOCKET
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit

BETWEEN_DROPS = 0.02
PATIENCE = 20.0
"""How long a test waits for what must happen before it is a failure."""


class Received(NamedTuple):
    method: str
    path: str
    """Without the leading slash and the query."""
    query: dict[str, str]
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    connection: int
    """Which of the receiver's connections it came over, counted from 1."""

    @property
    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.body)
        return value


class Exchange(NamedTuple):
    """One request, and the means to answer it."""

    request: Received
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    turn: int
    """How many of the same URL came before."""
    gate: asyncio.Event

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        fields = {"content-length": str(len(body)), **headers}
        await self.send(head(status, fields) + body)

    async def until_they_leave(self, at_most: float | None = None) -> bool:
        """Whether they have."""
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most):
                await self.reader.read()
                return True
        return False


def head(status: int, fields: dict[str, str]) -> bytes:
    named = {code.value: code.phrase for code in HTTPStatus}
    lines = [f"HTTP/1.1 {status} {named.get(status, 'Whatever')}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode()


# -- the vices ------------------------------------------------------------------------------------


async def ok(exchange: Exchange) -> None:
    await exchange.answer(200, b"thanks")


async def turns(exchange: Exchange) -> None:
    statuses = exchange.request.query["of"].split(",")
    await exchange.answer(int(statuses[min(exchange.turn, len(statuses) - 1)]))


async def flaky(exchange: Exchange) -> None:
    luck = random.Random(f"{exchange.request.query['seed']} {exchange.turn}").random()
    await exchange.answer(503 if luck < 0.4 else 200)


async def gate(exchange: Exchange) -> None:
    await exchange.gate.wait()
    await exchange.answer(200)


async def hang(exchange: Exchange) -> None:
    await exchange.until_they_leave()


async def trickle_headers(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nx-slow: ")
    await _trickle(exchange)


async def trickle_body(exchange: Exchange) -> None:
    await exchange.send(head(200, {"content-length": "1000000"}))
    await _trickle(exchange)


async def _trickle(exchange: Exchange) -> None:
    while not await exchange.until_they_leave(BETWEEN_DROPS):
        await exchange.send(b"a")


async def endless(exchange: Exchange) -> None:
    await exchange.send(head(200, {"transfer-encoding": "chunked"}))
    piece = b"4000\r\n" + b"e" * 0x4000 + b"\r\n"
    while True:
        await exchange.send(piece)


@cache
def bomb() -> bytes:
    return gzip.compress(bytes(64 * 1024 * 1024), compresslevel=9)


async def gzip_bomb(exchange: Exchange) -> None:
    status = int(exchange.request.query.get("status", "200"))
    await exchange.answer(status, bomb(), content_encoding="gzip")


async def reset(exchange: Exchange) -> None:
    socket = exchange.writer.get_extra_info("socket")
    socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    exchange.writer.transport.abort()


async def drop(exchange: Exchange) -> None:
    exchange.writer.close()


async def garbage(exchange: Exchange) -> None:
    await exchange.send(b"\x00\x01 what \x1b[31m would you like?\r\n\r\n")
    exchange.writer.close()


async def raw(exchange: Exchange) -> None:
    await exchange.send(bytes.fromhex(exchange.request.query.get("hex", "")))
    exchange.writer.close()


async def cookie(exchange: Exchange) -> None:
    await exchange.answer(200, set_cookie="crumb=1; Path=/")


async def echo(exchange: Exchange) -> None:
    request = exchange.request
    said = [f"{name}: {value}" for name, value in request.headers.items()]
    await exchange.answer(400, "\n".join(said).encode() + b"\n" + request.body)


async def redirect(exchange: Exchange) -> None:
    host = exchange.request.headers["host"]
    to = exchange.request.query.get("to", f"http://{host}/inward")
    await exchange.answer(int(exchange.request.path), location=to)


async def with_status(exchange: Exchange) -> None:
    query = exchange.request.query
    extra = {"retry-after": query["after"]} if "after" in query else {}
    body = query.get("body", "").encode()
    await exchange.answer(int(exchange.request.path), body, **extra)


VICES: dict[str, Callable[[Exchange], Awaitable[None]]] = {
    "ok": ok,
    "turns": turns,
    "flaky": flaky,
    "gate": gate,
    "hang": hang,
    "trickle-headers": trickle_headers,
    "trickle-body": trickle_body,
    "endless": endless,
    "gzip-bomb": gzip_bomb,
    "reset": reset,
    "drop": drop,
    "garbage": garbage,
    "raw": raw,
    "cookie": cookie,
    "echo": echo,
    "inward": ok,
    "301": redirect,
    "307": redirect,
}


# -- the receiver ---------------------------------------------------------------------------------


class Receiver:
    """Listens from ``async with`` on. ``tls`` makes its URLs ``https``."""

    def __init__(
        self, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self.received: list[Received] = []
        self.connections = 0
        self.open = 0
        """Connections that are not closed yet."""
        self.gate = asyncio.Event()
        self._turns: Counter[tuple[str, str]] = Counter()
        self._address = (host, port)
        self._tls = tls
        self._news = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def url(self, path: str, host: str | None = None) -> str:
        scheme = "https" if self._tls else "http"
        return f"{scheme}://{host or self._address[0]}:{self.port}/{path}"

    async def got(self, count: int) -> list[Received]:
        """What came in, as soon as there are ``count`` requests."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: len(self.received) >= count)
        return self.received

    async def alone(self) -> None:
        """As soon as no client is connected any more."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: not self.open)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._meet, *self._address, ssl=self._tls)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)
        await self._server.wait_closed()

    def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        talk = asyncio.create_task(self._talk(reader, writer, self.connections))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _talk(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        try:
            while not writer.is_closing():
                request = await _read(reader, number)
                async with self._news:
                    self.received.append(request)
                    self._news.notify_all()
                vice = VICES.get(request.path, with_status)
                url = (request.path, str(request.query))
                self._turns[url] += 1
                turn = self._turns[url] - 1
                await vice(Exchange(request, reader, writer, turn, self.gate))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # they left
        finally:
            writer.transport.abort()
            self.open -= 1
            async with self._news:
                self._news.notify_all()


async def _read(reader: asyncio.StreamReader, connection: int) -> Received:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
    method, target, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    parts = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, parts.path.lstrip("/"), query, headers, body, connection)
