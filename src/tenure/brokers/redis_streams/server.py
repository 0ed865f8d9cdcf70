"""Calls to the server: bounded, one connection each, with errors in our words."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from tenure.brokers.redis_streams.address import Address, open_pool
from tenure.model.errors import BrokerUnavailable

_SCRIPTS = {
    name: (files(__package__) / f"{name}.lua").read_text(encoding="utf-8")
    for name in ("tend", "settle", "give_back", "forget", "leave")
}


class NoGroup(BrokerUnavailable):
    """The stream or its group is not there, or no longer: to be made again."""


class Server:
    def __init__(self, address: Address) -> None:
        self._place = address.place
        self._pool = open_pool(address)
        self._client = Redis(connection_pool=self._pool)

    async def call(self, *words: str | int) -> Any:
        """``NoGroup``, ``BrokerUnavailable``."""
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

    async def close(self) -> None:
        await self._client.aclose()
        await self._pool.disconnect()
