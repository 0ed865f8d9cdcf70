"""Connections by purpose, so that nobody waits behind what is none of his business.

A commit never waits for a list, a renewal never for output: each lane has connections of its own,
made when they are needed and kept. A connection holds no state between calls: a pooler may hand
each transaction to another one. One that ended while it was idle is replaced unnoticed; one that
ends in mid-call is ``StoreUnavailable``, for nobody knows what became of the call. A server that
takes no writes any more is left (``leaving``).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from math import inf
from time import monotonic

import psycopg
from psycopg.errors import ReadOnlySqlTransaction

from tenure.aio import times_cancelled
from tenure.model.errors import StoreUnavailable, TenureError
from tenure.stores.postgres.address import Address
from tenure.stores.postgres.failures import DRIVER_ERRORS, takes_no_writes, translation
from tenure.stores.postgres.lane import Lane
from tenure.stores.postgres.leaving import Leaving
from tenure.stores.postgres.line import Line
from tenure.stores.postgres.migrating import check_schema, look
from tenure.stores.postgres.server_clock import ServerClock
from tenure.stores.postgres.servers import Servers
from tenure.stores.postgres.session import Session
from tenure.stores.postgres.statements import SQL
from tenure.stores.postgres.watchdog import Watchdog

LOOK_EVERY = 5.0
"""Seconds. Somebody may migrate the store while we use it, or make its server read-only: so long
may pass until that is noticed. A look is a trip, made by the call that comes next; after half of
that time by the next that only reads, so that in a process that does both no write waits for it."""


class Purpose(StrEnum):
    WRITING = "writing"
    READING = "reading"
    KEEPING = "keeping"
    """Renewals: whoever misses them loses his runs."""
    OUTPUT = "output"


class Connections:
    def __init__(self, address: Address, clock: ServerClock) -> None:
        self.address = address
        self._servers = Servers(address)
        self._clock = clock
        self._pid = os.getpid()
        self._closed = False
        self._lanes: dict[asyncio.AbstractEventLoop, dict[Purpose, Lane]] = {}
        self._leaving = Leaving()
        self._fitted_at = -inf
        """When the schema was last seen to be ours."""

    @asynccontextmanager
    async def session(
        self, purpose: Purpose, *, any_schema: bool = False, seconds: float | None = None
    ) -> AsyncIterator[Session]:
        """For one call. ``any_schema``: for whoever looks after the schema itself."""
        cancelled_before = times_cancelled()
        lane = self._lane(purpose)
        await self._wait_for_room(lane, purpose)
        watchdog: Watchdog | None = None
        connection: Line | None = None
        try:
            self._check_usable()  # it may have been closed meanwhile
            connection = lane.take() or await self._made(lane, any_schema)
            watchdog = Watchdog(connection, seconds or self.address.statement_timeout)
            if not any_schema and self._is_time_to_look(purpose):
                await self._look_at_schema(connection)
            yield Session(connection, self._clock)
            if connection.unconfirmed:
                raise StoreUnavailable(
                    f"{self.address.place}: the call was stopped while it waited, for a replica it "
                    "seems, and may or may not last"
                )
            if watchdog.tripped:
                raise StoreUnavailable(
                    f"{self.address.place}: the call took longer than {watchdog.seconds:g} s (this "
                    "process may have stood still), and may or may not last"
                )
        except TenureError:
            raise
        except DRIVER_ERRORS as error:
            if times_cancelled() > cancelled_before:
                # A driver that is cancelled in mid-call raises what it meets on its way out.
                raise asyncio.CancelledError from error
            if watchdog is not None and watchdog.tripped:
                raise StoreUnavailable(
                    f"{self.address.place} did not answer within {watchdog.seconds:g} s; the call "
                    "was given up, and may or may not have been done"
                ) from error
            if isinstance(error, ReadOnlySqlTransaction) and connection is not None:
                self._leave_server_of(connection)
            raise translation(self.address, error) from error
        finally:
            if watchdog is not None:
                watchdog.stop()
            if connection is not None:
                # One that was told to stop may be told so a moment later, in somebody else's call.
                stopped = watchdog is not None and watchdog.tripped
                keep = not any_schema and not stopped and not self._leaving.has_left(connection)
                _give_back(lane, connection, keep=keep)
            lane.free.release()

    @asynccontextmanager
    async def own_line(self) -> AsyncIterator[Line]:
        """For whoever needs one for long; it counts in no lane."""
        self._check_usable()
        connection = await self._connect(any_schema=False)
        try:
            with self._leaving.lending(connection):
                yield connection
        finally:
            connection.hang_up()

    async def check_schema(self) -> None:
        """As it is now. ``StoreIncompatible``."""
        self._fitted_at = -inf
        async with self.session(Purpose.READING):
            pass  # to get one is to look

    async def close(self) -> None:
        """May be called twice."""
        self._closed = True
        lanes, self._lanes = self._lanes, {}
        if os.getpid() != self._pid:
            return  # the connections are the parent's
        for lane in _all_of(lanes):
            lane.close()

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise StoreUnavailable(
                f"{self.address.place}: this store was opened before the process forked; open it "
                "anew"
            )
        if self._closed:
            raise StoreUnavailable(f"{self.address.place}: this store has been closed")

    def _lane(self, purpose: Purpose) -> Lane:
        self._check_usable()
        loop = asyncio.get_running_loop()
        lanes = self._lanes.get(loop)
        if lanes is None:
            self._forget_ended_loops()
            few = self.address.connections
            sizes = {Purpose.KEEPING: 1, Purpose.OUTPUT: 1}
            made = {each: Lane(sizes.get(each, few)) for each in Purpose}
            lanes = self._lanes.setdefault(loop, made)
        return lanes[purpose]

    def _forget_ended_loops(self) -> None:
        """Loops of other threads come, end and are forgotten meanwhile."""
        for loop in list(self._lanes):
            if loop.is_closed():
                for lane in self._lanes.pop(loop, {}).values():
                    lane.close()

    async def _wait_for_room(self, lane: Lane, purpose: Purpose) -> None:
        if not lane.free.locked():
            await lane.free.acquire()  # at once
            return
        try:
            async with asyncio.timeout(self.address.connect_timeout):
                await lane.free.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                f"all {lane.size} connections to {self.address.place} for {purpose.value} have "
                f"been busy for {self.address.connect_timeout:g} s: nothing was done. The server "
                "is slow, or the store URL allows too few: ?connections="
            ) from None

    async def _made(self, lane: Lane, any_schema: bool) -> Line:
        if any_schema:
            return await self._connect(any_schema=True)
        return await lane.make(lambda: self._connect(any_schema=False))

    async def _connect(self, *, any_schema: bool) -> Line:
        """Also finds out whether this is a server, and a schema, to decide anything on."""
        era = self._leaving.era
        connection = await self._servers.connect()
        connection.era = era
        if not any_schema:
            watchdog = Watchdog(connection, self.address.statement_timeout)
            try:
                await self._look_at_schema(connection)
                if self.address.prepared:
                    told = (connection.info.backend_pid,)
                    await connection.execute(SQL["for_prepared_statements"], told, prepare=False)
            except BaseException:
                connection.hang_up()
                raise
            finally:
                watchdog.stop()
        return connection

    def _is_time_to_look(self, purpose: Purpose) -> bool:
        early = purpose is Purpose.READING
        return monotonic() - self._fitted_at > (LOOK_EVERY / 2 if early else LOOK_EVERY)

    async def _look_at_schema(self, connection: Line) -> None:
        """Once it was not ours every call looks, until it is again."""
        now = monotonic()
        found = await look(connection)
        self._fitted_at = -inf
        if found.read_only:
            self._leave_server_of(connection)
            raise takes_no_writes(self.address, "transaction_read_only is on")
        check_schema(self.address.place, found.schema)
        self._fitted_at = now

    def _leave_server_of(self, connection: Line) -> None:
        self._leaving.leave(connection, _all_of(self._lanes))


def _all_of(lanes: dict[asyncio.AbstractEventLoop, dict[Purpose, Lane]]) -> list[Lane]:
    return [lane for each in list(lanes.values()) for lane in each.values()]


def _give_back(lane: Lane, connection: Line, *, keep: bool) -> None:
    idle = connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE
    if idle and keep and not connection.unconfirmed:
        lane.keep(connection)
    else:
        # Whatever was begun ends with the connection; a polite farewell might never return.
        connection.hang_up()
