"""Connections by purpose, so that a commit never waits for a list, nor a renewal for output.

Each purpose has a pool of its own (``psycopg_pool``), opened when it is first used. A connection
holds no state between calls: a pooler may hand each transaction to another one. One that ended
while it was idle is replaced unnoticed; one that ends in mid-call is ``StoreUnavailable``, for it
is not known what became of the call. A server that takes no writes any more is left: all
connections are made anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from math import inf
from time import monotonic
from weakref import WeakKeyDictionary

from psycopg import errors
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from tenure.aio import times_cancelled
from tenure.model.errors import StoreUnavailable, TenureError
from tenure.stores.postgres.address import Address
from tenure.stores.postgres.connection import CANCEL_TIMEOUT_S, Connection, ServerClock, Session
from tenure.stores.postgres.errors import (
    DRIVER_ERRORS,
    not_connected,
    takes_no_writes,
    translation,
)
from tenure.stores.postgres.schema import check_schema, look
from tenure.stores.postgres.statements import SQL

# What a pool of ours meets is raised where it is waited for; it need not be on standard error too.
logging.getLogger("psycopg.pool").addFilter(
    lambda told: "tenure" not in str(told.args[:1] if isinstance(told.args, tuple) else "")
)

LOOK_EVERY_S = 5.0
"""The store may be migrated while it is used, or its server made read-only: so long may pass until
that is noticed. A look is a trip, made by the call that comes next; after half of that time by the
next that only reads, so that in a process that does both no write waits for it."""
_CONNECT_MARGIN_S = 2.0
"""An attempt to connect that takes all its time is heard of before its caller gives up."""
_CLOSE_TIMEOUT_S = 1.0
"""Closing waits so long for a connection that is just being made."""


class Purpose(StrEnum):
    WRITING = "writing"
    READING = "reading"
    KEEPING = "keeping"
    """Renewals and heartbeats: an owner that misses them loses its runs."""
    OUTPUT = "output"


class _Pool:
    """Of one purpose, in one event loop."""

    def __init__(
        self,
        address: Address,
        purpose: Purpose,
        size: int,
        ready: Callable[[Connection], Awaitable[None]],
    ) -> None:
        self._address = address
        self._purpose = purpose
        self._failure: asyncio.Future[Exception] | None = None
        """Of the next attempt to connect, while a caller waits for a connection."""
        self.pool = AsyncConnectionPool(
            address.conninfo,
            connection_class=Connection,
            kwargs={
                "ready": ready,
                "failed": self._failed,
                "prepare_threshold": 5 if address.prepared else None,
            },
            name=f"tenure-{purpose}",
            min_size=0,
            max_size=size,
            open=False,
            num_workers=1,
            # Each caller that waits has a new attempt made, and is told how it ended.
            reconnect_timeout=0,
        )

    async def take(self) -> Connection:
        while True:
            if self.pool.get_stats()["pool_available"]:
                connection = await self.pool.getconn()
            else:
                connection = await self._made_or_given_back()
            if connection.is_quiet:
                return connection
            await self.give_back(connection, keep=False)

    async def _made_or_given_back(self) -> Connection:
        """Or the error of whatever attempt to connect fails next: a pool alone would let its
        callers wait until their time is over, and not say why."""
        if self._failure is None:
            self._failure = asyncio.get_running_loop().create_future()
        failure, seconds = self._failure, self._address.connect_timeout * self._address.servers
        getting = asyncio.ensure_future(self.pool.getconn(seconds + _CONNECT_MARGIN_S))
        try:
            await asyncio.wait((getting, failure), return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                return getting.result()
        except PoolTimeout:
            raise StoreUnavailable(
                f"all {self.pool.max_size} connections to {self._address.place} for "
                f"{self._purpose.value} have been busy for {seconds:g} s: nothing was done. The "
                "server is slow, or the store URL allows too few: ?connections="
            ) from None
        except BaseException:
            getting.cancel()
            with suppress(BaseException):
                await self.give_back(getting.result(), keep=True)
            raise
        getting.cancel()
        raise _NotConnected(failure.result())

    def _failed(self, error: BaseException) -> None:
        if not isinstance(error, Exception):
            # The pool takes it for one more failed attempt, and its worker would never end.
            worker = asyncio.current_task()
            if worker is not None:
                asyncio.get_running_loop().call_soon(worker.cancel)
            return
        failure, self._failure = self._failure, None
        if failure is not None:
            failure.set_result(error)

    async def give_back(self, connection: Connection, *, keep: bool) -> None:
        """Whatever was begun ends with a connection that is not kept; the pool replaces it."""
        if not (keep and connection.is_idle) or connection.unconfirmed or connection.stopped:
            await connection.close()
        await self.pool.putconn(connection)


class _NotConnected(Exception):
    def __init__(self, error: Exception) -> None:
        self.error = error


class Connections:
    def __init__(self, address: Address, clock: ServerClock) -> None:
        self.address = address
        self._clock = clock
        self._closed = False
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Purpose, _Pool]] = (
            WeakKeyDictionary()
        )
        self._lent: set[Connection] = set()
        self._fitted_at = -inf
        """When the schema was last seen to be ours."""

    @asynccontextmanager
    async def session(self, purpose: Purpose) -> AsyncIterator[Session]:
        """For one call."""
        pool = await self._pool(purpose)
        async with self._told_plainly(self.address.statement_timeout) as limit:
            connection = await pool.take()
            try:
                # Here, not around the wait for a connection, which has a limit of its own.
                limit.reschedule(_in_seconds(self.address.statement_timeout))
                if self._is_time_to_look(purpose):
                    await self._look_at_schema(connection)
                yield Session(connection, self._clock)
                self._check_confirmed(connection)
            finally:
                await pool.give_back(connection, keep=not limit.expired())

    @asynccontextmanager
    async def apart(self, seconds: float) -> AsyncIterator[Session]:
        """For whatever looks after the schema itself, and may take long: on a connection of its
        own, whatever the schema."""
        async with self._told_plainly(seconds) as limit, self.lent(any_schema=True) as connection:
            limit.reschedule(_in_seconds(seconds))
            yield Session(connection, self._clock)
            self._check_confirmed(connection)

    @asynccontextmanager
    async def lent(self, *, any_schema: bool = False) -> AsyncIterator[Connection]:
        """For long; it is in no pool. It ends when its server is left."""
        self._check_open()
        try:
            connection = await Connection.connect(
                self.address.conninfo,
                prepare_threshold=None,
                ready=_nothing_to_do if any_schema else self._make_ready,
                failed=lambda error: None,
            )
        except DRIVER_ERRORS as error:
            raise _NotConnected(error) from error
        self._lent.add(connection)
        try:
            yield connection
        finally:
            self._lent.discard(connection)
            await connection.close()

    @asynccontextmanager
    async def _told_plainly(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        """What the driver raises, in our words."""
        cancelled_before = times_cancelled()
        limit = asyncio.timeout(None)
        try:
            async with limit:
                yield limit
        except TenureError:
            raise
        except _NotConnected as told:
            if isinstance(told.error, TenureError):
                raise told.error from None
            raise not_connected(self.address, told.error) from told.error
        except DRIVER_ERRORS as error:
            if times_cancelled() > cancelled_before:
                # A driver that is cancelled in mid-call raises what it meets on its way out.
                raise asyncio.CancelledError from error
            if limit.expired():
                raise StoreUnavailable(
                    f"{self.address.place} did not answer within {seconds:g} s; the call was given "
                    "up, and may or may not have been done"
                ) from error
            if isinstance(error, errors.ReadOnlySqlTransaction):
                await self._leave_server()
            if self._closed:
                self._check_open()
            raise translation(self.address, error) from error

    async def check_schema(self) -> None:
        """As it is now. ``StoreIncompatible``."""
        self._fitted_at = -inf
        async with self.session(Purpose.READING):
            pass  # to get one is to look

    async def close(self) -> None:
        """May be called twice."""
        self._closed = True
        pools = self._pools.pop(asyncio.get_running_loop(), {}).values()
        await asyncio.gather(*(pool.pool.close(_CLOSE_TIMEOUT_S) for pool in pools))

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self.address.place}: this store has been closed")

    def _check_confirmed(self, connection: Connection) -> None:
        if connection.unconfirmed:
            raise StoreUnavailable(
                f"{self.address.place}: the call was stopped while it waited, for a replica it "
                "seems, and may or may not last"
            )

    async def _pool(self, purpose: Purpose) -> _Pool:
        self._check_open()
        pools = self._pools.setdefault(asyncio.get_running_loop(), {})
        pool = pools.get(purpose)
        if pool is None:
            few = purpose in (Purpose.KEEPING, Purpose.OUTPUT)
            size = 1 if few else self.address.connections
            pool = pools[purpose] = _Pool(self.address, purpose, size, self._make_ready)
            await pool.pool.open()
        return pool

    async def _make_ready(self, connection: Connection) -> None:
        """Is this a server, and a schema, to decide anything on?"""
        async with asyncio.timeout(self.address.statement_timeout):
            await self._look_at_schema(connection)
            if self.address.prepared:
                pid = (connection.info.backend_pid,)
                await connection.execute(SQL["for_prepared_statements"], pid, prepare=False)

    def _is_time_to_look(self, purpose: Purpose) -> bool:
        early = purpose is Purpose.READING
        return monotonic() - self._fitted_at > (LOOK_EVERY_S / 2 if early else LOOK_EVERY_S)

    async def _look_at_schema(self, connection: Connection) -> None:
        """Once it was not ours every call looks, until it is again."""
        now = monotonic()
        found = await look(connection, self.address.statement_timeout + CANCEL_TIMEOUT_S)
        self._fitted_at = -inf
        if found.read_only:
            await self._leave_server()
            raise takes_no_writes(self.address, "transaction_read_only is on")
        check_schema(self.address.place, found.schema)
        self._fitted_at = now

    async def _leave_server(self) -> None:
        """All connections are made anew, to the server that takes writes: those that are idle now,
        those in use when they come back."""
        for pool in self._pools.get(asyncio.get_running_loop(), {}).values():
            await pool.pool.drain()
        for connection in self._lent:
            connection.cut()


def _in_seconds(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def _nothing_to_do(connection: Connection) -> None:
    return
