"""What stands between a client and its server, and does what networks do."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Self


class Proxy:
    """Listens on a port of its own and passes everything on, until told otherwise."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._silent = False
        self._lost_about: bytes | None = None
        self._late = 0.0
        self._answers_pass = asyncio.Event()
        self._answers_pass.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exit_details: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.cut()

    def lose_next_answer(self, about: str = "") -> None:
        """The next request that names ``about`` reaches the server and is done; its connection is
        cut before the answer. Others, such as those of a pool that connects, are left alone."""
        self._lost_about = about.encode()

    def answer_late(self, seconds: float) -> None:
        """As over a long way."""
        self._late = seconds

    def hold_answers(self) -> None:
        """Requests reach the server and are done; their answers are under way for a while."""
        self._answers_pass.clear()

    def let_answers_pass(self) -> None:
        self._answers_pass.set()

    def fall_silent(self) -> None:
        """Nothing passes any more, and nobody is told."""
        self._silent = True

    def speak_again(self) -> None:
        """For new connections; those that fell silent are of no use any more."""
        self._silent = False
        self.cut()

    def cut(self) -> None:
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._writers |= {writer, back}
        named = asyncio.Event()
        self._begin(self._pass_on(reader, back, named, answers=False))
        self._begin(self._pass_on(there, writer, named, answers=True))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.add(asyncio.create_task(work))

    async def _pass_on(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        named: asyncio.Event,
        *,
        answers: bool,
    ) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                if self._silent:
                    continue
                if not answers and self._lost_about is not None and self._lost_about in data:
                    named.set()
                if answers and named.is_set():
                    self._lost_about = None
                    break
                if answers:
                    await self._answers_pass.wait()
                    await asyncio.sleep(self._late)
                target.write(data)
                await target.drain()
        if not self._silent:
            target.close()
