"""Those who look: HTTP on a bare socket, so that nothing reads ahead for them."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

SOON = 20.0
"""Seconds; for a machine that is very busy."""
TOKENS = {"list_tokens"}
"""Asked of the store once in a while, whoever looks: whether they still may."""


class Told(NamedTuple):
    """One server-sent event."""

    kind: str
    data: Any
    id: str | None = None

    @property
    def place(self) -> str:
        return f"{self.data['version']}.{self.data['seq']}"


class Viewer:
    """``status`` and ``headers`` of the answer, then event by event."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.status = 0
        self.headers: dict[str, str] = {}
        self.comments = 0
        self._text = b""
        self._ended = False

    async def begin(self, path: str, headers: dict[str, str]) -> Self:
        lines = [
            f"GET {path} HTTP/1.1",
            "host: localhost",
            *(f"{k}: {v}" for k, v in headers.items()),
        ]
        self._writer.write("\r\n".join([*lines, "", ""]).encode())
        _, status, _ = (await self._reader.readline()).split(b" ", 2)
        self.status = int(status)
        while line := (await self._reader.readline()).strip():
            name, _, value = line.decode().partition(":")
            self.headers[name] = value.strip()
        return self

    async def next(self) -> Told | None:
        """``None``: it has ended, as it should."""
        while True:
            block = await self._block()
            if block is None:
                return None
            fields = dict(line.partition(": ")[::2] for line in block.split("\n"))
            if "data" in fields:
                data = json.loads(fields["data"])
                return Told(fields.get("event", "message"), data, fields.get("id"))
            self.comments += "" in fields

    async def all(self) -> list[Told]:
        async with asyncio.timeout(SOON):
            told: list[Told] = []
            while (each := await self.next()) is not None:
                told.append(each)
            return told

    async def some(self, number: int) -> list[Told]:
        async with asyncio.timeout(SOON):
            told: list[Told] = []
            while len(told) < number:
                each = await self.next()
                assert each is not None, f"ended after {told}"
                told.append(each)
            return told

    async def exactly(self) -> bytes:
        """The body of an answer that is no stream."""
        return await self._reader.readexactly(int(self.headers["content-length"]))

    async def _block(self) -> str | None:
        while b"\n\n" not in self._text:
            if self._ended:
                assert self._text == b""
                return None
            self._text += await self._chunk()
        block, _, self._text = self._text.partition(b"\n\n")
        return block.decode()

    async def _chunk(self) -> bytes:
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        self._ended = size == 0
        return (await self._reader.readexactly(size + 2))[:-2]


@asynccontextmanager
async def looking(
    address: str,
    path: str,
    *,
    after: str | None = None,
    token: str | None = None,
    small: bool = False,
    **headers: str,
) -> AsyncIterator[Viewer]:
    """``small``: with hardly any room for what was not read yet."""
    place = urlsplit(address)
    line = socket.socket()
    if small:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.setblocking(False)
    await asyncio.get_running_loop().sock_connect(line, (place.hostname, place.port))
    limit = 1024 if small else 1 << 22
    reader, writer = await asyncio.open_connection(sock=line, limit=limit)
    said = {"accept": "text/event-stream"}
    if after is not None:
        said["last-event-id"] = after
    if token is not None:
        said["authorization"] = f"Bearer {token}"
    said |= {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        yield await Viewer(reader, writer).begin(path, said)
    finally:
        writer.transport.abort()
