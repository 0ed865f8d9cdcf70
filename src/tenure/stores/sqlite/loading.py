"""The run, with the steps and hosts that one update concerns: ``model.deltas`` says which."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.stores import record_rows, step_rows
from tenure.stores.recent import Known, Recent
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.reading import Reading
from tenure.stores.sqlite.rows import Head
from tenure.stores.sqlite.statements import Statements


class Loading:
    def __init__(self, sql: Statements, reading: Reading) -> None:
        self._sql = sql
        self._reading = reading
        self.recent: Recent[Head] = Recent()
        self._data_version = -1

    def begin(self) -> None:
        """At the start of a transaction: has anybody else written since our last one?"""
        self._data_version = self._sql.one("data_version")[0]

    def remember(self, head: Head, steps: Iterable[StepState]) -> Known[Head]:
        known = Known(head, steps, self._ended_host)
        known.seen_in = self._data_version
        self.recent.put(head.run.run_id, known)
        return known

    def find(self, run_id: str) -> Head | None:
        known = self.recent.get(run_id)
        if known is not None:
            if known.seen_in == self._data_version:
                return known.head
            head = rows.still_as(known.head, self._sql.first("mark", known.head.seq))
            if head is not None:
                known.head, known.seen_in = head, self._data_version
                return head
            self.recent.forget(run_id)
        row = self._sql.first("head_by_id", run_id)
        return rows.head_of(row) if row else None

    def head(self, seq: int) -> Head:
        return rows.head_of(self._sql.one("head_by_seq", seq))

    def update_id_of(self, seq: int, version: int) -> str | None:
        row = self._sql.first("update_id_of", seq, version)
        return row[0] if row else None

    def with_callbacks(self, head: Head) -> RunSnapshot:
        (callbacks,) = self._sql.one("callbacks", head.seq)
        return replace(head.run, callbacks=record_rows.callbacks_of(callbacks))

    def steps(self, head: Head) -> Known[Head]:
        """As remembered; else they are read."""
        known = self.recent.get(head.run.run_id)
        if known is not None:
            return known
        steps = self._reading.steps(head)
        if head.run.ended:
            return Known(head, steps, self._ended_host)
        return self.remember(head, steps)

    def _ended_host(self, known: Known[Head], step: int, name: str) -> HostState | None:
        row = self._sql.first("host", known.head.seq, step, name)
        return step_rows.host_of(row[0]) if row is not None else None
