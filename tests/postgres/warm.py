"""Connections that outlive a test's store, for tests that are about something else.

A new backend loads its catalogue and plans every statement anew: that is most of what a short test
waits for. A connection remembers nothing between calls but prepared statements, so the next store
may have it; it is even handed on from one event loop to the next, which works as long as nobody
ever waited for it.
"""

from __future__ import annotations

from collections import defaultdict
from unittest.mock import patch

from tenure.ports.environment import Clock
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.address import Address
from tenure.stores.postgres.connections import Connections
from tenure.stores.postgres.line import Line

_spare: defaultdict[Address, list[Line]] = defaultdict(list)


class _WarmConnections(Connections):
    async def _connect(self, *, any_schema: bool) -> Line:
        spare = _spare[self.address]
        while spare and not any_schema:
            connection = spare.pop()
            if not connection.closed:
                return connection
        return await super()._connect(any_schema=any_schema)

    async def close(self) -> None:
        for lane in (lane for each in self._lanes.values() for lane in each.values()):
            _spare[self.address] += lane.idle
            lane.idle.clear()
        await super().close()


def warm_store(url: str, clock: Clock) -> PostgresStore:
    with patch("tenure.stores.postgres.store.Connections", _WarmConnections):
        return PostgresStore(url, clock=clock)


def let_go_of_all() -> None:
    """Their event loops have ended; so they end without ado."""
    for connection in (connection for each in _spare.values() for connection in each):
        connection.pgconn.finish()
    _spare.clear()
