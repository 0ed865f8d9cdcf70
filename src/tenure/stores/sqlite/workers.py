"""Who is there."""

from __future__ import annotations

import apsw
import msgspec
from msgspec.structs import replace

from tenure.model.codec import decode
from tenure.ports.leases import WorkerInfo
from tenure.stores import record_rows
from tenure.stores.lease_clock import LeaseClock
from tenure.stores.sqlite.database import transaction
from tenure.stores.sqlite.statements import Statements

_workers = msgspec.json.Decoder(WorkerInfo)


class Workers:
    def __init__(self, connection: apsw.Connection, clock: LeaseClock) -> None:
        self._connection = connection
        self._sql = Statements(connection)
        self._clock = clock

    def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        with transaction(self._connection):
            instant = self._clock.read()
            until = instant.until(seconds)
            seen = record_rows.text(replace(worker, seen_at=instant.now))
            self._sql.do("put_worker", worker.owner_id, until.boot_id, until.nanoseconds, seen)
            self._sql.do("forget_silent_workers", *instant.boot)

    def present(self) -> list[WorkerInfo]:
        instant = self._clock.read()
        found = self._sql.all("workers", *instant.boot)
        return [decode(_workers, body) for (body,) in found]
