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

from tenure.stores.postgres.address import Address, one_by_one
from tenure.stores.postgres.driver_log import keep_to_ourselves
from tenure.stores.postgres.line import Line
from tenure.stores.postgres.unreached import Unreached, refusal

Server = dict[str, str]

_NOT_REACHED = (TimeoutError, psycopg.OperationalError)


class Servers:
    def __init__(self, address: Address) -> None:
        keep_to_ourselves()
        self._address = address
        self._in_order = tuple(one_by_one(_settings(conninfo_to_dict(address.conninfo))))
        self._answered: Server = {}

    async def connect(self) -> Line:
        """``StoreUnavailable`` tells what each server answered; of a single one that is neither
        silent nor a replica the driver's error does."""
        unreached: list[Unreached] = []
        for named in self._in_order:
            try:
                addresses = await self._look_up(named)
            except _NOT_REACHED as error:
                unreached.append(Unreached(named, error))
                continue
            for server in addresses:
                try:
                    line = await self._reach(server)
                except _NOT_REACHED as error:
                    unreached.append(Unreached(server, error))
                else:
                    self._answered = server
                    self._ask_first(named)
                    return line
        refused, last = refusal(self._address, unreached), unreached[-1].error
        if refused is last:
            raise refused
        raise refused from last

    def _ask_first(self, named: Server) -> None:
        """Another order, not the same list in another one: a list has nothing in it while it is
        sorted, and loops of other threads read it."""
        self._in_order = tuple(sorted(self._in_order, key=lambda each: each != named))

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
                # Whatever the environment says, and the database has: all our texts are UTF-8.
                make_conninfo(**{**server, "client_encoding": "UTF8"}),
                autocommit=True,
                cursor_factory=AsyncRawCursor,
                prepare_threshold=2 if self._address.prepared else None,
            )


def _settings(given: ConnDict) -> Server:
    return {name: str(value) for name, value in given.items()}
