"""The servers that a store URL, the environment or a service file names, and reaching the one that
takes writes.

Each has the whole time to answer, and of a name with several addresses each address: one that is
switched off, or cut off without a word, must not use up that of the others. Who answered last is
asked first, so that such a server costs its time once. Names are looked up each time: one that has
come to mean another server means it from then on.
"""

from __future__ import annotations

import asyncio

import psycopg
from psycopg import AsyncRawCursor
from psycopg.abc import ConnDict
from psycopg.conninfo import conninfo_attempts_async, conninfo_to_dict, make_conninfo
from psycopg.errors import ConnectionTimeout

from tenure.model.errors import StoreUnavailable
from tenure.stores.postgres.address import Address, one_by_one
from tenure.stores.postgres.line import Line

Server = dict[str, str]


class Servers:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._in_order = one_by_one(_settings(conninfo_to_dict(address.conninfo)))
        self._answered: Server = {}

    async def connect(self) -> Line:
        """``StoreUnavailable`` tells of silent ones and of replicas; else what the driver says of
        the last that was asked."""
        silent: Exception | None = None
        replica: Exception | None = None
        other: Exception | None = None
        for named in list(self._in_order):
            try:
                addresses = await self._look_up(named)
            except (TimeoutError, psycopg.OperationalError) as error:
                other = error
                continue
            for server in addresses:
                try:
                    line = await self._reach(server)
                except (TimeoutError, ConnectionTimeout) as error:
                    silent = error
                except psycopg.OperationalError as error:
                    if "read-only" in str(error):
                        replica = error
                    else:
                        other = error
                else:
                    self._answered = server
                    self._in_order.sort(key=lambda each: each != named)
                    return line
        if replica is not None:
            raise StoreUnavailable(
                f"{self._address.place} is a read replica: it must not decide who owns a run. Name "
                "the primary in the store URL, or all servers, host1,host2"
            ) from replica
        if other is not None:
            raise other
        raise StoreUnavailable(
            f"{self._address.place} did not answer within {self._address.connect_timeout:g} s"
        ) from silent

    async def _look_up(self, named: Server) -> list[Server]:
        """One for each of its addresses."""
        try:
            async with asyncio.timeout(self._address.connect_timeout):
                found = [_settings(each) for each in await conninfo_attempts_async(named)]
        except UnicodeError as error:
            raise psycopg.OperationalError(f"no name of a host: {error}") from error
        return sorted(found, key=lambda each: each != self._answered)

    async def _reach(self, server: Server) -> Line:
        async with asyncio.timeout(self._address.connect_timeout):
            return await Line.connect(
                make_conninfo(**server),
                autocommit=True,
                cursor_factory=AsyncRawCursor,
                prepare_threshold=2 if self._address.prepared else None,
            )


def _settings(given: ConnDict) -> Server:
    return {name: str(value) for name, value in given.items()}
