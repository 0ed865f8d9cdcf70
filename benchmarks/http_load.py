"""A client that asks as fast as it is answered, on connections that stay open.

python -m benchmarks.http_load ADDRESS CONNECTIONS SECONDS PAUSE PATH …

Prints answers a second and the hundredths of their latency as JSON. With a PAUSE each connection
waits before it asks again.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from itertools import cycle
from statistics import quantiles
from time import perf_counter
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Load(NamedTuple):
    rate: float
    latency: list[float]
    """Hundredths, in seconds."""


def load(
    address: str,
    paths: list[str],
    *,
    connections: int = 32,
    seconds: float = 3.0,
    pause: float = 0.0,
) -> Load:
    """In a process of its own."""
    numbers = [str(connections), str(seconds), str(pause)]
    command = [sys.executable, "-m", "benchmarks.http_load", address, *numbers, *paths]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Load(**json.loads(done.stdout))


class Asker(asyncio.Protocol):
    def __init__(self, requests: cycle[bytes], pause: float, took: list[float]) -> None:
        self._requests = requests
        self._pause = pause
        self._took = took
        self._heard = bytearray()
        self._wanted = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.ask()

    def ask(self) -> None:
        self._began = perf_counter()
        self._transport.write(next(self._requests))

    def data_received(self, data: bytes) -> None:
        self._heard += data
        if not self._wanted:
            head, found, _ = self._heard.partition(b"\r\n\r\n")
            if not found:
                return
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(head.decode())
            length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
            self._wanted = len(head) + 4 + int(length)
        if len(self._heard) >= self._wanted:
            self._took.append(perf_counter() - self._began)
            self._heard.clear()
            self._wanted = 0
            if self._pause:
                asyncio.get_running_loop().call_later(self._pause, self.ask)
            else:
                self.ask()


async def _ask(
    address: str, paths: list[str], connections: int, seconds: float, pause: float
) -> Load:
    netloc, loop = urlsplit(address).netloc, asyncio.get_running_loop()
    host, _, port = netloc.partition(":")
    asked = [f"GET {path} HTTP/1.1\r\nhost: {netloc}\r\n\r\n".encode() for path in paths]
    requests = cycle(asked)
    took: list[float] = []
    for _ in range(connections):
        await loop.create_connection(lambda: Asker(requests, pause, took), host, int(port))
    await asyncio.sleep(seconds / 4)  # by then everybody is warm
    took.clear()
    began = perf_counter()
    await asyncio.sleep(seconds)
    return Load(len(took) / (perf_counter() - began), quantiles(took, n=100))


if __name__ == "__main__":
    import uvloop

    address, connections, seconds, pause, *paths = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as running:
        asked = _ask(address, paths, int(connections), float(seconds), float(pause))
        print(json.dumps(running.run(asked)._asdict()))
