"""How much there is, and how much of it is to be done."""

from __future__ import annotations

from tenure.model.status import RunStatus
from tenure.ports.store import Census, QueueLength
from tenure.stores.postgres.connections import Connections, Purpose


class Counting:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def census(self, most: int) -> Census:
        async with self._connections.session(Purpose.READING) as session:
            *_, counted, ((waiting, dead),), lengths, _ = await session.together(
                ("begin",),
                ("carefully",),
                ("runs_by_status", most, list(RunStatus)),
                ("census", most),
                ("queue_lengths", most),
                ("commit",),
            )
        return Census(
            runs={RunStatus(status): runs for status, runs in counted},
            callbacks_waiting=waiting,
            callbacks_dead=dead,
            queues=tuple(
                QueueLength(queue=queue, runs=runs, oldest_seconds=max(seconds, 0.0))
                for queue, runs, seconds in lengths
            ),
        )
