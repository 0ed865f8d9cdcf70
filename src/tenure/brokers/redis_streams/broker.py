"""The broker: which calls make one of its verbs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from math import ceil, inf
from typing import Any, Self

from tenure.brokers.redis_streams.address import read_address
from tenure.brokers.redis_streams.server import NoGroup, Server
from tenure.model.errors import BrokerUnavailable, InvalidRunId
from tenure.model.ids import check_run_id
from tenure.ports.broker import Hint
from tenure.system import new_owner_id

_GROUP = "workers"
_MOST = 10_000
"""Hints of one queue, about. A run whose hint was dropped is found by looking."""
_LONGEST_READ = 0.5
"""Seconds that the server lets a reader wait: well below the time-out of a call, and the longest
that closing waits for one."""
_FORGOTTEN_AFTER = 10
"""Visibility time-outs without a word from a consumer."""

Entry = tuple[bytes, Iterable[tuple[bytes, bytes]]]


class RedisStreams:
    """``Broker``. Belongs to the event loop that uses it first."""

    def __init__(self, url: str, visibility_timeout: float = 30.0) -> None:
        """``UnknownBroker``. Connects when it is first used."""
        address = read_address(url)
        self._server = Server(address)
        self._namespace = address.namespace
        self._consumer = new_owner_id()
        self._hidden_for = ceil(visibility_timeout * 1000)
        self._forget_at = 0.0
        self._served: set[str] = set()
        self._turn = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exit_details: object) -> None:
        await self.close()

    async def close(self) -> None:
        """What was taken and not answered goes to others at once."""
        try:
            if self._served:  # a reader that was left behind may still be handed something
                await self._server.left_behind()
            for queue in sorted(self._served):
                with suppress(NoGroup):
                    keys = [self._stream(queue)]
                    await self._server.run("leave", keys, _GROUP, self._consumer)
        except BrokerUnavailable:
            pass  # others forget this consumer in time
        finally:
            await self._server.close()

    async def publish(self, queue: str, run_id: str) -> None:
        stream = self._stream(queue)
        await self._server.call("XADD", stream, "MAXLEN", "~", _MOST, "*", "run", run_id)

    async def take(self, queues: Sequence[str], *, limit: int, wait: float) -> list[Hint]:
        self._served.update(queues)
        in_turn = self._in_turn(queues)
        hints: list[Hint] = []
        next_due = wait
        for queue in in_turn:
            entries, due = await self._tend(queue, limit - len(hints))
            hints += await self._readable(queue, entries)
            next_due = min(next_due, due)
            if len(hints) >= limit:
                return hints
        await self._forget_the_silent(queues)
        return hints or await self._wait_for(in_turn, limit, next_due)

    async def acknowledge(self, hints: Sequence[Hint]) -> None:
        by_queue = sorted(hints, key=lambda hint: hint.queue)
        for queue, of_queue in groupby(by_queue, key=lambda hint: hint.queue):
            await self._settle(queue, [hint.receipt for hint in of_queue])

    async def give_back(self, hint: Hint, delay: float) -> None:
        keys = [self._stream(hint.queue), self._later(hint.queue)]
        milliseconds = ceil(max(delay, 0.0) * 1000)
        with suppress(NoGroup):  # purged: then nobody holds it
            await self._server.run(
                "give_back",
                keys,
                _GROUP,
                self._consumer,
                hint.receipt,
                hint.run_id,
                milliseconds,
                _MOST,
            )

    async def purge(self, queue: str) -> None:
        await self._server.call("DEL", self._stream(queue), self._later(queue))

    async def ping(self) -> None:
        await self._server.call("PING")

    # Taking

    def _in_turn(self, queues: Sequence[str]) -> list[str]:
        """Another one first each time: a queue that is never empty keeps none from being served."""
        first = self._turn % len(queues) if queues else 0
        self._turn += 1
        return [*queues[first:], *queues[:first]]

    async def _tend(self, queue: str, limit: int) -> tuple[list[Entry], float]:
        """What others held for too long, then what nobody took yet, and in how many seconds
        something given back is due."""
        stream = self._stream(queue)
        keys = [stream, self._later(queue)]
        arguments = (_GROUP, self._consumer, self._hidden_for, limit, _MOST)
        try:
            taken, due = await self._server.run("tend", keys, *arguments)
        except NoGroup:
            await self._make_group(stream)
            taken, due = await self._server.run("tend", keys, *arguments)
        return [_from_script(entry) for entry in taken if entry], due / 1000 if due >= 0 else inf

    async def _make_group(self, stream: str) -> None:
        """From the first entry on: hints may have come before anybody served their queue."""
        try:
            await self._server.call("XGROUP", "CREATE", stream, _GROUP, "0", "MKSTREAM")
        except BrokerUnavailable as error:
            if "BUSYGROUP" not in str(error):  # somebody else was faster
                raise

    async def _wait_for(self, queues: Sequence[str], limit: int, wait: float) -> list[Hint]:
        """The server counts for each stream: of more queues than there is room for it may send more
        than that, of which the rest goes back at once."""
        if wait <= 0:
            return []
        by_stream = {self._stream(queue).encode(): queue for queue in queues}
        try:
            answer = await self._server.call(
                "XREADGROUP", "GROUP", _GROUP, self._consumer,
                "COUNT", max(1, limit // len(by_stream)),
                "BLOCK", ceil(min(wait, _LONGEST_READ) * 1000),
                "STREAMS", *(stream.decode() for stream in by_stream), *[">"] * len(by_stream),
            )  # fmt: skip
        except NoGroup:  # all of it vanished this very moment
            return []
        hints: list[Hint] = []
        for stream, entries in answer or ():
            read = [(entry_id, fields.items()) for entry_id, fields in entries]
            hints += await self._readable(by_stream[stream], read)
        await self._put_back(hints[limit:])
        return hints[:limit]

    async def _put_back(self, hints: Sequence[Hint]) -> None:
        for hint in hints:
            with suppress(NoGroup):  # purged: then nobody holds it
                keys = [self._stream(hint.queue)]
                await self._server.run("put_back", keys, _GROUP, self._consumer, hint.receipt)

    async def _readable(self, queue: str, entries: Sequence[Entry]) -> list[Hint]:
        """What is not ours is dropped, and so does not come again."""
        hints = [_hint_of(queue, entry) for entry in entries]
        strange = [
            entry_id.decode()
            for (entry_id, _), hint in zip(entries, hints, strict=True)
            if hint is None
        ]
        if strange:
            await self._settle(queue, strange)
        return [hint for hint in hints if hint is not None]

    async def _settle(self, queue: str, receipts: Sequence[str]) -> None:
        with suppress(NoGroup):  # purged: then nobody holds them
            await self._server.run(
                "settle", [self._stream(queue)], _GROUP, self._consumer, *receipts
            )

    async def _forget_the_silent(self, queues: Sequence[str]) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._forget_at:
            return
        self._forget_at = now + self._hidden_for / 1000
        for queue in queues:
            with suppress(NoGroup):
                keys = [self._stream(queue)]
                await self._server.run("forget", keys, _GROUP, self._hidden_for * _FORGOTTEN_AFTER)

    # Names on the server

    def _stream(self, queue: str) -> str:
        return f"{self._namespace}:hints:{queue}"

    def _later(self, queue: str) -> str:
        return f"{self._namespace}:later:{queue}"


def _from_script(entry: Any) -> Entry:
    """As a script answers: fields and values in one list, or nothing for a deleted entry."""
    entry_id, words = entry
    words = words or ()
    return entry_id, zip(words[::2], words[1::2], strict=False)


def _hint_of(queue: str, entry: Entry) -> Hint | None:
    entry_id, fields = entry
    try:
        ((name, value),) = fields
        run_id = check_run_id(value.decode("ascii"))
    except (ValueError, InvalidRunId):
        return None
    return Hint(queue=queue, run_id=run_id, receipt=entry_id.decode()) if name == b"run" else None
