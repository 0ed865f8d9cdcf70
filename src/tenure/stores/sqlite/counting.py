"""How much there is, and how much of it is to be done. Runs in a reader's thread."""

from __future__ import annotations

import json

import apsw

from tenure.model.status import RunStatus
from tenure.ports.store import Census, QueueLength
from tenure.stores.lease_clock import LeaseClock
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.statements import Statements


class Counting:
    def __init__(self, connection: apsw.Connection, clock: LeaseClock) -> None:
        self._sql = Statements(connection)
        self._clock = clock

    def census(self, most: int) -> Census:
        waiting, dead = self._sql.one("census", most)
        counted = self._sql.all("runs_by_status", most, json.dumps(list(RunStatus)))
        now = rows.micros(self._clock.now())
        return Census(
            runs={RunStatus(status): runs for status, runs in counted},
            callbacks_waiting=waiting,
            callbacks_dead=dead,
            queues=tuple(
                QueueLength(queue=queue, runs=runs, oldest_seconds=max(now - ready_at, 0) / 1e6)
                for queue, runs, ready_at in self._sql.all("queue_lengths", most)
            ),
        )
