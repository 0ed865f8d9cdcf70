"""The servers that a store URL names, and reaching the one that takes writes.

Each has the whole time to answer: one that is switched off, or cut off without a word, must not use
up that of the others. Who answered last is asked first, so that such a server costs its time once.
"""

from __future__ import annotations

import asyncio

import psycopg
from psycopg import AsyncRawCursor
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import ConnectionTimeout

from tenure.model.errors import StoreUnavailable
from tenure.stores.postgres.address import Address, one_by_one
from tenure.stores.postgres.line import Line


class Servers:
    def __init__(self, address: Address) -> None:
        self._address = address
        given = {name: str(value) for name, value in conninfo_to_dict(address.conninfo).items()}
        self._in_order = [make_conninfo(**server) for server in one_by_one(given)]

    async def connect(self) -> Line:
        """``StoreUnavailable`` tells of silent ones and of replicas; else what the driver says of
        the last that was asked."""
        silent: Exception | None = None
        replica: Exception | None = None
        other: Exception | None = None
        for server in self._in_order:
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
                self._in_order = [server, *(each for each in self._in_order if each != server)]
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

    async def _reach(self, server: str) -> Line:
        async with asyncio.timeout(self._address.connect_timeout):
            return await Line.connect(
                server,
                autocommit=True,
                cursor_factory=AsyncRawCursor,
                prepare_threshold=2 if self._address.prepared else None,
            )
