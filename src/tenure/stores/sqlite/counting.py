"""How much there is to do. Runs in a reader's thread."""

from __future__ import annotations

import apsw

from tenure.ports.census import Census, QueueLength
from tenure.stores.lease_clock import LeaseClock
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.statements import Statements


class Counting:
    def __init__(self, connection: apsw.Connection, clock: LeaseClock) -> None:
        self._sql = Statements(connection)
        self._clock = clock

    def census(self, most: int) -> Census:
        queued, running, waiting, dead = self._sql.one("census", most)
        now = rows.micros(self._clock.now())
        return Census(
            queued=queued,
            running=running,
            callbacks_waiting=waiting,
            callbacks_dead=dead,
            queues=tuple(
                QueueLength(queue=queue, runs=runs, oldest_seconds=max(now - ready_at, 0) / 1e6)
                for queue, runs, ready_at in self._sql.all("queue_lengths", most)
            ),
        )
