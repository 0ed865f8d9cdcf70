"""Receivers of callbacks in a process of their own: one that is as quick as can be, and vices.

``python -m benchmarks.callback_receivers VICE …`` listens on a port for each and prints the ports
on one line. When its standard input ends it prints when each callback arrived, by its id, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic

QUICK = "quick"
_TAKEN = b"HTTP/1.1 204 No Content\r\n\r\n"
_EMPTY = b"content-length: 0\r\n\r\n"
_ANSWERS = {
    QUICK: _TAKEN,
    "500": b"HTTP/1.1 500 Oops\r\n" + _EMPTY,
    "503": b"HTTP/1.1 503 Later\r\nretry-after: 1\r\n" + _EMPTY,
    "429": b"HTTP/1.1 429 Slowly\r\n" + _EMPTY,
    "301": b"HTTP/1.1 301 Elsewhere\r\nlocation: http://127.0.0.1/\r\n" + _EMPTY,
    "400": b"HTTP/1.1 400 What\r\n" + _EMPTY,
    "410": b"HTTP/1.1 410 Gone\r\n" + _EMPTY,
    "garbage": b"\x00 what would you like?\r\n\r\n",
}
_ENDLESS = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n" + bytes(256 * 1024)
VICES = (
    *("hang", "trickle", "reset", "endless"),
    *("500", "503", "429", "301", "410", "garbage"),
)


class _Talk(asyncio.Protocol):
    """Answers each request by its vice; reads no more of it than it must."""

    def __init__(self, vice: str, arrivals: dict[str, float]) -> None:
        self._vice = vice
        self._arrivals = arrivals
        self._came = b""
        self._dripping: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._came += data
        while (request := self._whole_request()) is not None:
            self._answer(request)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._dripping is not None:
            self._dripping.cancel()

    def _whole_request(self) -> bytes | None:
        head, separator, rest = self._came.partition(b"\r\n\r\n")
        if not separator:
            return None
        head = head.lower()
        length = int(_header(head, b"content-length"))
        if len(rest) < length:
            return None
        self._came = rest[length:]
        return head

    def _answer(self, head: bytes) -> None:
        match self._vice:
            case "hang":
                return
            case "reset":
                self._transport.abort()
            case "endless":
                self._transport.write(_ENDLESS)
            case "trickle":
                self._transport.write(b"HTTP/1.1 200 OK\r\nx-slow: ")
                self._drip()
            case vice:
                self._transport.write(_ANSWERS[vice])
                if vice == QUICK:
                    self._arrivals[_header(head, b"webhook-id").decode()] = monotonic()

    def _drip(self) -> None:
        self._transport.write(b"a")
        self._dripping = asyncio.get_running_loop().call_later(0.05, self._drip)


def _header(head: bytes, name: bytes) -> bytes:
    _, _, rest = head.partition(b"\r\n" + name + b": ")
    return rest.partition(b"\r\n")[0] or b"0"


async def _listen(vices: list[str]) -> None:
    loop = asyncio.get_running_loop()
    arrivals: dict[str, float] = {}
    servers = [
        await loop.create_server(partial(_Talk, vice, arrivals), "127.0.0.1", 0, backlog=1000)
        for vice in vices
    ]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(json.dumps(arrivals), flush=True)


class Receivers:
    """The process, and where each of its receivers listens."""

    def __init__(self, process: subprocess.Popen[str], vices: tuple[str, ...]) -> None:
        self._process = process
        assert process.stdout is not None
        ports = process.stdout.readline().split()
        self.urls = {
            vice: f"http://127.0.0.1:{port}/hook" for vice, port in zip(vices, ports, strict=True)
        }

    def end(self) -> dict[str, float]:
        """When each callback arrived, by the machine's monotonic clock."""
        arrivals: dict[str, float] = json.loads(self._process.communicate()[0])
        return arrivals


@contextmanager
def receivers(*vices: str) -> Iterator[Receivers]:
    command = [sys.executable, "-m", "benchmarks.callback_receivers", *vices]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield Receivers(process, vices)
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(_listen(sys.argv[1:]))
