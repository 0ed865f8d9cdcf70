"""Whole records from rows. Runs in a reader's thread, inside one read transaction."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime, timedelta

import apsw
import msgspec
from msgspec.structs import replace

from tenure.model.codec import decode
from tenure.model.errors import RunNotFound
from tenure.model.leases import present
from tenure.model.query import Ownership, RunFilter
from tenure.model.snapshot import RunSnapshot, RunSummary, StepState, summarize
from tenure.model.status import Recovery
from tenure.model.update import Event, Position, RecordedEvent, record
from tenure.stores import record_rows, step_rows
from tenure.stores.lease_clock import LeaseClock, shown
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.listing import newest_seqs
from tenure.stores.sqlite.rows import Head
from tenure.stores.sqlite.statements import Row, Statements

_versions = msgspec.json.Decoder(dict[str, int])
_events = msgspec.json.Decoder(tuple[Event, ...])


class Reading:
    def __init__(self, connection: apsw.Connection, clock: LeaseClock) -> None:
        self._sql = Statements(connection)
        self._clock = clock

    def page(self, where: RunFilter, before: int, limit: int) -> list[tuple[int, RunSummary]]:
        seqs = newest_seqs(self._sql, where, before, limit)
        return [(seq, self.summary(seq)) for seq in seqs]

    def snapshot(self, run_id: str) -> RunSnapshot:
        row = self._sql.first("run_by_id", run_id)
        if row is None:
            raise RunNotFound(run_id)
        return self._complete(row)[1]

    def versions(self, run_ids: Collection[str]) -> dict[str, int]:
        (found,) = self._sql.one("versions_by_id", json.dumps(list(run_ids)))
        return decode(_versions, found)

    def snapshot_by_seq(self, seq: int) -> tuple[Head, RunSnapshot]:
        return self._complete(self._sql.one("run_by_seq", seq))

    def summary(self, seq: int) -> RunSummary:
        *columns, summary = self._sql.one("summary_by_seq", seq)
        head = rows.head_of(columns)
        return summarize(self._present(head, record_rows.with_spec(head.run, summary)))

    def events(self, run_id: str, after: Position, limit: int) -> list[RecordedEvent]:
        row = self._sql.first("seq_of_run", run_id)
        if row is None:
            raise RunNotFound(run_id)
        found: list[RecordedEvent] = []
        for version, at, fence, text in self._sql.each("journal_after", row[0], after.version):
            events = decode(_events, text)
            for seq, event in enumerate(events):
                if (version, seq) > after:
                    found.append(
                        record(
                            event,
                            run_id=run_id,
                            version=version,
                            seq=seq,
                            at=rows.moment(at),
                            fence=fence,
                        )
                    )
            if len(found) >= limit:
                break
        return found[:limit]

    def owners(self) -> list[Ownership]:
        return [
            Ownership(
                owner_id=owner_id,
                recovery=Recovery(recovery),
                runs=runs,
                lost=lost,
                canceling=canceling,
            )
            for owner_id, recovery, runs, lost, canceling in self._sql.all(
                "owners", *self._clock.read().boot
            )
        ]

    def time(self) -> datetime:
        return self._clock.read().now

    def prunable(self, older_than: float, limit: int) -> list[int]:
        """Numbers of runs that nobody needs any more, the one that ended first first."""
        ended_before = self._clock.now() - timedelta(seconds=older_than)
        found = self._sql.all("prunable", rows.micros(ended_before), max(limit, 0))
        return [seq for (seq,) in found]

    def definition(self, run_id: str) -> str | None:
        row = self._sql.first("definition", run_id)
        if row is None:
            raise RunNotFound(run_id)
        text: str | None = row[0]
        return text

    def definition_digest(self, seq: int) -> str | None:
        digest: str | None = self._sql.one("definition_digest", seq)[0]
        return digest

    def _complete(self, row: Row) -> tuple[Head, RunSnapshot]:
        *columns, summary, callbacks, variables, plan = row
        head = rows.head_of(columns)
        run = replace(
            head.run,
            **record_rows.spec_fields(summary),
            callbacks=record_rows.callbacks_of(callbacks),
            vars=record_rows.vars_of(variables),
            steps=self._steps(head, plan),
        )
        return head, self._present(head, run)

    def _present(self, head: Head, run: RunSnapshot) -> RunSnapshot:
        live = run.owner_id is not None and self._clock.is_live(head.lease_until)
        return present(run, lease_live=live, expires_at=shown(head.lease_until))

    def steps(self, head: Head) -> tuple[StepState, ...]:
        return self._steps(head, self._sql.one("plan", head.seq)[0])

    def _steps(self, head: Head, plan: str) -> tuple[StepState, ...]:
        return step_rows.assembled(
            head.run.status,
            head.run.finished_at,
            record_rows.plan_of(plan),
            [step_rows.step_row(*row) for row in self._sql.all("steps_of_run", head.seq)],
            (_task_row(*row) for row in self._sql.all("tasks_of_run", head.seq)),
        )


def _task_row(step: int, host: str, item: int, body: str) -> step_rows.TaskRow:
    return step_rows.TaskRow(step, host, item, step_rows.host_of(body))
