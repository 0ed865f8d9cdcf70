"""A receiver on this machine that keeps what it gets and sees what overlaps."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Self

import msgspec

from tenure.model.update import Position
from tests.runtime_relay.senders import PATIENCE

_TAKEN = b"HTTP/1.1 204 No Content\r\n\r\n"
_GONE = b"HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n"


class Letter(NamedTuple):
    delivery_id: str
    run_id: str
    place: Position
    redelivery: bool


class Inbox:
    """``came`` hears of each letter before it is answered; what it ``refuses`` is answered 410.
    ``takes_time`` is for each answer."""

    def __init__(
        self,
        came: Callable[[Letter], None] = lambda _: None,
        takes_time: float = 0.0,
        refuses: Callable[[Letter], bool] = lambda _: False,
    ) -> None:
        self.letters: list[Letter] = []
        self.most_at_once: Counter[str] = Counter()
        """By run: letters not answered yet when another came."""
        self._came = came
        self._takes_time = takes_time
        self._refuses = refuses
        self._open: Counter[str] = Counter()
        self._news = asyncio.Condition()
        self._talks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        host, port = self._server.sockets[0].getsockname()
        return f"http://{host}:{port}/hook"

    @property
    def ids(self) -> list[str]:
        return [letter.delivery_id for letter in self.letters]

    def places(self) -> dict[str, list[Position]]:
        """Of each run, in the order in which they came for the first time."""
        found: dict[str, dict[Position, None]] = {}
        for letter in self.letters:
            found.setdefault(letter.run_id, {})[letter.place] = None
        return {run_id: list(places) for run_id, places in found.items()}

    async def gets(self, letters: int) -> None:
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: len(self.letters) >= letters)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._meet, "127.0.0.1", 0, backlog=1000)
        return self

    async def __aexit__(self, *exit_details: object) -> None:
        self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)
        await self._server.wait_closed()

    def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.create_task(self._talk(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                letter = await _read(reader)
                await self._receive(letter)
                writer.write(_GONE if self._refuses(letter) else _TAKEN)
        writer.transport.abort()

    async def _receive(self, letter: Letter) -> None:
        self._open[letter.run_id] += 1
        self.most_at_once[letter.run_id] = max(
            self.most_at_once[letter.run_id], self._open[letter.run_id]
        )
        try:
            async with self._news:
                self.letters.append(letter)
                self._news.notify_all()
            self._came(letter)
            await asyncio.sleep(self._takes_time)
        finally:
            self._open[letter.run_id] -= 1


async def _read(reader: asyncio.StreamReader) -> Letter:
    _, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines if line)
    body: dict[str, Any] = msgspec.json.decode(
        await reader.readexactly(int(headers["content-length"]))
    )
    return Letter(
        headers["webhook-id"],
        body["run_id"],
        Position(body["version"], body["seq"]),
        headers.get("tenure-redelivery") == "true",
    )
