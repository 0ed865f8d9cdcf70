"""Calls to the server: bounded, one connection each, with errors in our words."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from tenure.brokers.redis_streams.address import Address, open_pool
from tenure.cancelling import end
from tenure.model.errors import BrokerUnavailable

_SCRIPTS = {
    name: (files(__package__) / f"{name}.lua").read_text(encoding="utf-8")
    for name in ("tend", "settle", "give_back", "put_back", "forget", "leave")
}


class NoGroup(BrokerUnavailable):
    """The stream or its group is not there, or no longer: to be made again."""


class Server:
    """An exchange that has begun is not cancelled until all is closed: a client that is interrupted
    in one may lose the connection, or the cancellation. Who no longer waits leaves it behind, and
    it ends soon."""

    def __init__(self, address: Address) -> None:
        self._place = address.place
        self._pool = open_pool(address)
        self._client = Redis(connection_pool=self._pool)
        self._exchanges: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def call(self, *words: str | int) -> Any:
        """``NoGroup``, ``BrokerUnavailable``."""
        if self._closed:  # nobody would close what it opens
            raise BrokerUnavailable(f"the broker at {self._place} was closed here")
        exchange = asyncio.create_task(self._exchange(words))
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._over)
        return await asyncio.shield(exchange)

    def _over(self, exchange: asyncio.Task[Any]) -> None:
        self._exchanges.discard(exchange)
        if not exchange.cancelled():
            exchange.exception()  # perhaps nobody else asks any more

    async def _exchange(self, words: Sequence[str | int]) -> Any:
        try:
            answer = self._client.execute_command(*words)  # type: ignore[no-untyped-call]
            return await answer
        except (RedisError, OSError) as error:
            said = str(error) or type(error).__name__
            if "NOGROUP" in said or "UNBLOCKED" in said:
                raise NoGroup(said) from error
            raise BrokerUnavailable(f"the broker at {self._place}: {said}") from error

    async def run(self, script: str, keys: Sequence[str], *arguments: str | int) -> Any:
        """Sent whole each time: a server that was restarted remembers none."""
        return await self.call("EVAL", _SCRIPTS[script], len(keys), *keys, *arguments)

    async def left_behind(self) -> None:
        """Returns when no exchange is under way any more."""
        if self._exchanges:
            await asyncio.wait(self._exchanges)

    async def close(self) -> None:
        """What is still under way ends without its answer."""
        self._closed = True
        await end(*self._exchanges)
        await self._client.aclose()
        await self._pool.disconnect()
