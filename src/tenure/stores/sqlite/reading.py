"""Whole records from rows. Runs in a reader's thread, inside one read transaction."""

from __future__ import annotations

from datetime import datetime

import apsw
import msgspec
from msgspec.structs import replace

from tenure.model.closing import close_hosts, close_step
from tenure.model.codec import decode
from tenure.model.errors import RunNotFound
from tenure.model.events import Event, Position, RecordedEvent, record
from tenure.model.leasing import present
from tenure.model.query import RunFilter
from tenure.model.snapshot import (
    HostState,
    ItemState,
    RunSnapshot,
    RunSummary,
    StepState,
    summarize,
)
from tenure.model.status import ENDED_STEP
from tenure.stores.lease_clock import LeaseClock, shown
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.listing import newest_seqs
from tenure.stores.sqlite.rows import HOST_ITSELF, Head
from tenure.stores.sqlite.statements import Row, Statements

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

    def snapshot_by_seq(self, seq: int) -> tuple[Head, RunSnapshot]:
        return self._complete(self._sql.one("run_by_seq", seq))

    def summary(self, seq: int) -> RunSummary:
        *columns, summary = self._sql.one("summary_by_seq", seq)
        head = rows.head_of(columns)
        return summarize(self._present(head, rows.with_spec(head.run, summary)))

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

    def prunable(self, ended_before: datetime, limit: int) -> list[int]:
        """Numbers of runs that nobody needs any more, the one that ended first first."""
        found = self._sql.all("prunable", rows.micros(ended_before), max(limit, 0))
        return [seq for (seq,) in found]

    def definition(self, run_id: str) -> str | None:
        row = self._sql.first("definition", run_id)
        if row is None:
            raise RunNotFound(run_id)
        text: str | None = row[0]
        return text

    def _complete(self, row: Row) -> tuple[Head, RunSnapshot]:
        *columns, summary, callbacks, variables, plan = row
        head = rows.head_of(columns)
        run = replace(
            head.run,
            **rows.spec_fields(summary),
            callbacks=rows.callbacks_of(callbacks),
            vars=rows.vars_of(variables),
            steps=self._steps(head, plan),
        )
        return head, self._present(head, run)

    def _present(self, head: Head, run: RunSnapshot) -> RunSnapshot:
        live = run.owner_id is not None and self._clock.is_live(head.lease_until)
        return present(run, lease_live=live, expires_at=shown(head.lease_until))

    def steps(self, head: Head) -> tuple[StepState, ...]:
        return self._steps(head, self._sql.one("plan", head.seq)[0])

    def _steps(self, head: Head, plan: str) -> tuple[StepState, ...]:
        """The plan, overlaid with what has been reached, closed as far as it has ended."""
        steps = rows.planned_steps(plan)
        for index, body, added in self._sql.all("steps_of_run", head.seq):
            reached = rows.step_of(body)
            planned = steps.get(index)
            if planned is None:
                steps[index] = replace(reached, hosts=rows.added_hosts(added or "[]"))
            else:
                steps[index] = replace(
                    planned,
                    status=reached.status,
                    message=reached.message,
                    started_at=reached.started_at,
                    finished_at=reached.finished_at,
                )
        self._overlay_hosts(head.seq, steps)
        return tuple(self._closed(head, steps[index]) for index in sorted(steps))

    def _overlay_hosts(self, seq: int, steps: dict[int, StepState]) -> None:
        """Rows come ordered by step, host, item: a host before its items."""
        host: HostState | None = None
        items: list[ItemState] = []
        place = (-1, "")
        for index, name, item, body in self._sql.all("tasks_of_run", seq):
            if item != HOST_ITSELF:
                items.append(rows.item_of(body))
                continue
            if host is not None:
                steps[place[0]].hosts[place[1]] = _with_items(host, items)
            host, items, place = rows.host_of(body), [], (index, name)
        if host is not None:
            steps[place[0]].hosts[place[1]] = _with_items(host, items)

    @staticmethod
    def _closed(head: Head, step: StepState) -> StepState:
        if head.run.ended:
            return close_step(step, head.run.status, head.run.finished_at)
        return close_hosts(step) if step.status in ENDED_STEP else step


def _with_items(host: HostState, items: list[ItemState]) -> HostState:
    return replace(host, items=tuple(items)) if items else host
