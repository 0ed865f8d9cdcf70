"""How soon an idle worker begins what is submitted, told by a broker instead of PostgreSQL. For
information: a broker is there for many workers, and for stores that can tell nobody."""

from __future__ import annotations

import asyncio

from tests.brokers.server import Server as Broker
from tests.postgres.server import Server

from benchmarks.figures import Figure
from benchmarks.postgres_server import durable_server
from benchmarks.worker_starts import begun_by_worker, in_turns


def measure() -> list[Figure]:
    with durable_server() as server, Broker() as broker:
        return asyncio.run(_measure(server, broker))


async def _measure(server: Server, broker: Broker) -> list[Figure]:
    async with (
        begun_by_worker(server, "notified") as one,
        begun_by_worker(server, "hinted", broker.url) as other,
    ):
        notified, hinted = await in_turns(one, other)
    return [
        Figure(
            name=f"submit to first task by a broker's hint, {name}; limit: by NOTIFY",
            unit="s",
            ours=hinted[place],
            limit=notified[place],
        )
        for name, place in (("median", 49), ("p99", 98))
    ]
