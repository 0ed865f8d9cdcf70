"""Connections that cost little: until they have said what they want, and for each answer."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tenure.gateway.live.sending import TRANSPORT
from tenure.gateway.parts import Limits

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)
_MOST_GATHERED = 64 << 10


class GatheringTransport(asyncio.Transport):
    """What is written in one moment leaves as one: the head of an answer and its body are one
    packet and one call of the system, which costs more than making the answer."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._gathered: list[bytes] = []
        self._size = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._gathered:
            self._loop.call_soon(self._flush)
        self._gathered.append(bytes(data))
        self._size += len(data)
        if self._size > _MOST_GATHERED:  # whoever writes on and on must feel that nobody reads
            self._flush()

    def _flush(self) -> None:
        if self._gathered:
            data = b"".join(self._gathered)
            self._gathered.clear()
            self._size = 0
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)


def guarded(limits: Limits) -> type[asyncio.Protocol]:
    """uvicorn's protocol, which by itself would wait for headers for ever, and keep all of them."""

    class GuardedProtocol(HttpToolsProtocol):
        _heard = 0
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.transport = GatheringTransport(transport, self.loop)
            self._expect_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            self._headers_came()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._deadline is not None:
                self._heard += len(data)
            super().data_received(data)
            if self._deadline is not None and self._heard > limits.header_bytes:
                self._headers_came()
                self.transport.write(_TOO_LARGE)
                self.transport.close()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self.scope[TRANSPORT] = self.transport  # type: ignore[literal-required]
            if self._deadline is None:
                self._expect_headers()

        def on_headers_complete(self) -> None:
            self._headers_came()
            super().on_headers_complete()

        def _expect_headers(self) -> None:
            self._heard = 0
            self._deadline = self.loop.call_later(limits.header_seconds, self._too_late)

        def _headers_came(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _too_late(self) -> None:
            self._deadline = None
            self.transport.close()

    return GuardedProtocol
