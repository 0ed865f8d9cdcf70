"""All store protocols on one PostgreSQL database, for the processes of many machines.

The store connects on first use. A call is one or two trips to the server and one transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self
from weakref import WeakKeyDictionary

from tenure.model.leases import LateAnswers
from tenure.ports.environment import Clock
from tenure.stores.postgres.address import Address
from tenure.stores.postgres.admin import Admin
from tenure.stores.postgres.batch import RunCache
from tenure.stores.postgres.connection import ServerClock
from tenure.stores.postgres.leases import ClaimOrder, Leases
from tenure.stores.postgres.logs import Logs
from tenure.stores.postgres.notify import Announcer, WakeupCalls
from tenure.stores.postgres.outbox import OutboxCalls
from tenure.stores.postgres.pools import Connections
from tenure.stores.postgres.read import RunReads
from tenure.stores.postgres.write import RunWrites


class PostgresStore(RunWrites, RunReads, Leases, OutboxCalls, Logs, WakeupCalls, Admin):
    """``RunStateStore``, ``ParallelBatches``, ``RunVersions``, ``LeaseStore``, ``Beginnings``,
    ``EventLog``, ``ChangeFeed``, ``Definitions``, ``Outbox``, ``OutboxBatches``, ``LogStore``,
    ``LogListing``, ``LogSizes``, ``WorkerRegistry``, ``OwnerListing``, ``StoreClock``,
    ``CensusTaking``, ``TokenStore``, ``Wakeups``, ``WakeupCheck``, ``KeptApart``, ``Retention``,
    ``ReadinessCheck`` and ``Upkeep``. The bases share the attributes made here."""

    durable = True

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        """``clock``: a test's, in place of the server's. ``UnknownStore`` for an invalid URL; does
        not connect yet."""
        self._url, self._clock = url, clock
        address = Address.parse(url)
        self.batches_at_once = address.connections
        self._connections = Connections(address, ServerClock(clock))
        self._cache = RunCache()
        self._announcer = Announcer(self._connections)
        self._listening = WeakKeyDictionary()
        self._reads = WeakKeyDictionary()
        self._claim_order = ClaimOrder()
        self._pace = LateAnswers()

    async def close(self) -> None:
        """Close all connections. May be called twice."""
        for listening in list(self._listening.values()):
            await listening.close()
        self._listening.clear()
        await self._announcer.close()
        await self._connections.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exit_details: object) -> None:
        await self.close()

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[Self]:
        """A store with its own connections and cache, for another thread."""
        async with type(self)(self._url, self._clock) as apart:
            yield apart
