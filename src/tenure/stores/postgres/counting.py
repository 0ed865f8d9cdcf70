"""How much there is to do."""

from __future__ import annotations

from tenure.ports.census import Census, QueueLength
from tenure.stores.postgres.connections import Connections, Purpose


class Counting:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def census(self, most: int) -> Census:
        async with self._connections.session(Purpose.READING) as session:
            *_, ((queued, running, waiting, dead),), lengths, _ = await session.together(
                ("begin",),
                ("carefully",),
                ("census", most),
                ("queue_lengths", most),
                ("commit",),
            )
        return Census(
            queued=queued,
            running=running,
            callbacks_waiting=waiting,
            callbacks_dead=dead,
            queues=tuple(
                QueueLength(queue=queue, runs=runs, oldest_seconds=max(seconds, 0.0))
                for queue, runs, seconds in lengths
            ),
        )
