"""A connection pool (``psycopg_pool``) for each purpose, so that a commit never waits for a list,
nor a renewal for output.

A connection has no state between calls, for poolers. One that ends while idle is replaced; one that
ends during a call is ``StoreUnavailable``: the result is unknown. When a server becomes read-only,
all connections are replaced.
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
from tenure.stores.postgres.errors import DRIVER_ERRORS, not_connected, takes_no_writes, translation
from tenure.stores.postgres.schema import check_schema, look
from tenure.stores.postgres.statements import SQL

# Errors of our pools are raised by the calls and need not be logged too.
logging.getLogger("psycopg.pool").addFilter(
    lambda entry: "tenure" not in str(entry.args[:1] if isinstance(entry.args, tuple) else "")
)

LOOK_EVERY_S = 5.0
"""Between checks for a migrated store or a server made read-only. A check is a trip within the next
call; after half that time within the next read, so that usually no write has to wait."""
_CONNECT_MARGIN_S = 2.0
"""An attempt to connect must time out before its caller does."""
_CLOSE_TIMEOUT_S = 1.0
"""For a connection that is being made."""


class Purpose(StrEnum):
    WRITING = "writing"
    READING = "reading"
    KEEPING = "keeping"
    """Renewals and heartbeats: an owner that misses them loses its runs."""
    OUTPUT = "output"


class _Pool:
    """For one purpose, in one event loop."""

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
        """The error of the next attempt to connect, while a call waits for a connection."""
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
            # No retries in the background: each waiting call makes a new attempt.
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
        """Raises the error of the next failed attempt to connect; the pool alone would time out
        without a reason."""
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
            # The pool would treat a cancellation as a failed attempt, and its worker never end.
            worker = asyncio.current_task()
            if worker is not None:
                asyncio.get_running_loop().call_soon(worker.cancel)
            return
        failure, self._failure = self._failure, None
        if failure is not None:
            failure.set_result(error)

    async def give_back(self, connection: Connection, *, keep: bool) -> None:
        """Closes a connection that is not kept or not idle; the pool replaces it."""
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
        self._checked_at = -inf
        """Time of the last successful check of the schema."""

    @asynccontextmanager
    async def session(self, purpose: Purpose) -> AsyncIterator[Session]:
        """For one call."""
        pool = await self._pool(purpose)
        async with self._translated(self.address.statement_timeout) as limit:
            connection = await pool.take()
            try:
                # Not around the wait for a connection, which has its own limit.
                limit.reschedule(_in_seconds(self.address.statement_timeout))
                if self._is_time_to_look(purpose):
                    await self._look_at_schema(connection)
                yield Session(connection, self._clock)
                self._check_confirmed(connection)
            finally:
                await pool.give_back(connection, keep=not limit.expired())

    @asynccontextmanager
    async def apart(self, seconds: float) -> AsyncIterator[Session]:
        """For upkeep: on a separate connection, with any schema."""
        async with self._translated(seconds) as limit, self.lent(any_schema=True) as connection:
            limit.reschedule(_in_seconds(seconds))
            yield Session(connection, self._clock)
            self._check_confirmed(connection)

    @asynccontextmanager
    async def lent(self, *, any_schema: bool = False) -> AsyncIterator[Connection]:
        """For long, outside the pools. Cut when its server becomes read-only."""
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
    async def _translated(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        """Raises the driver's errors as ``StoreError``."""
        cancelled_before = times_cancelled()
        limit = asyncio.timeout(None)
        try:
            async with limit:
                yield limit
        except TenureError:
            raise
        except _NotConnected as failed:
            if isinstance(failed.error, TenureError):
                raise failed.error from None
            raise not_connected(self.address, failed.error) from failed.error
        except DRIVER_ERRORS as error:
            if times_cancelled() > cancelled_before:
                # The driver may raise another error when it is cancelled during a call.
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
        """``StoreIncompatible``."""
        self._checked_at = -inf
        async with self.session(Purpose.READING):
            pass  # a new session checks

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
        async with asyncio.timeout(self.address.statement_timeout):
            await self._look_at_schema(connection)
            if self.address.prepared:
                pid = (connection.info.backend_pid,)
                await connection.execute(SQL["for_prepared_statements"], pid, prepare=False)

    def _is_time_to_look(self, purpose: Purpose) -> bool:
        early = purpose is Purpose.READING
        return monotonic() - self._checked_at > (LOOK_EVERY_S / 2 if early else LOOK_EVERY_S)

    async def _look_at_schema(self, connection: Connection) -> None:
        """After a failure every call checks, until one succeeds."""
        now = monotonic()
        found = await look(connection, self.address.statement_timeout + CANCEL_TIMEOUT_S)
        self._checked_at = -inf
        if found.read_only:
            await self._leave_server()
            raise takes_no_writes(self.address, "transaction_read_only is on")
        check_schema(self.address.place, found.schema)
        self._checked_at = now

    async def _leave_server(self) -> None:
        """Replace all connections, those in use when they are returned."""
        for pool in self._pools.get(asyncio.get_running_loop(), {}).values():
            await pool.pool.drain()
        for connection in self._lent:
            connection.cut()


def _in_seconds(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def _nothing_to_do(connection: Connection) -> None:
    return
