"""Whole records, pages of runs, histories and counts, each in one read transaction.

Pages go by keyset: each costs the same, however long the history. Their statements are built from
fixed fragments, with every value bound. A filter by workflow, queue or statuses reads one ordered
index range for each status, and merges the few rows of each.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

import apsw
import msgspec
from msgspec.structs import replace

from tenure.model.codec import decode
from tenure.model.errors import RunNotFound
from tenure.model.leases import LeaseToken, present
from tenure.model.query import Ownership, RunFilter, encode_cursor
from tenure.model.snapshot import RunSnapshot, RunSummary, StepState, summarize
from tenure.model.status import Recovery, RunStatus
from tenure.model.tokens import Token
from tenure.model.update import Event, FeedPage, Position, RecordedEvent, record
from tenure.ports.leases import WorkerInfo
from tenure.ports.store import Census, QueueLength
from tenure.stores import rows as record_rows
from tenure.stores.lease_clock import LeaseClock, shown
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.rows import Head, Row, Statements, micros

_versions = msgspec.json.Decoder(dict[str, int])
_events = msgspec.json.Decoder(tuple[Event, ...])
_workers = msgspec.json.Decoder(WorkerInfo)
_tokens = msgspec.json.Decoder(Token)


class Reader:
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

    def changes_after(self, number: int, limit: int) -> FeedPage:
        """Commits are made one after another, so the numbers of journal rows are in their order."""
        events: list[RecordedEvent] = []
        for row in self._sql.all("changes_after", number, limit):
            number, run_id, version, at, fence, text = row
            moment, written = rows.moment(at), decode(_events, text)
            events += (
                record(event, run_id=run_id, version=version, seq=seq, at=moment, fence=fence)
                for seq, event in enumerate(written)
            )
        return FeedPage(events=tuple(events), cursor=encode_cursor("changes", number))

    def newest_change(self) -> str:
        return encode_cursor("changes", self._sql.one("newest_change")[0])

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

    def workers(self) -> list[WorkerInfo]:
        found = self._sql.all("workers", *self._clock.read().boot)
        return [decode(_workers, body) for (body,) in found]

    def tokens(self) -> list[Token]:
        return [decode(_tokens, body) for (body,) in self._sql.all("tokens")]

    def lease_tokens(self, run_ids: Collection[str]) -> dict[str, LeaseToken]:
        found = self._sql.all("lease_tokens", json.dumps(sorted(run_ids)))
        return {run_id: LeaseToken(fence, token_id) for run_id, fence, token_id in found}

    def token_secret(self) -> bytes:
        (secret,) = self._sql.one("token_secret")
        return bytes(secret)

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
        """Numbers of runs to prune, oldest end first."""
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
        return record_rows.assembled(
            head.run.status,
            head.run.finished_at,
            record_rows.plan_of(plan),
            [record_rows.step_row(*row) for row in self._sql.all("steps_of_run", head.seq)],
            (_task_row(*row) for row in self._sql.all("tasks_of_run", head.seq)),
        )


def _task_row(step: int, host: str, item: int, body: str) -> record_rows.TaskRow:
    return record_rows.TaskRow(step, host, item, record_rows.host_of(body))


_Values = list[Any]


def newest_seqs(sql: Statements, where: RunFilter, before: int, limit: int) -> list[int]:
    """Numbers of matching runs below ``before``, newest first."""
    conditions, values = _conditions(where)
    conditions.append("r.seq < ?")
    values.append(before)
    statement, values = _ordered(where, " and ".join(conditions), values, limit)
    return [seq for (seq,) in sql.built(statement, values)]


def runnable_conditions(where: RunFilter) -> tuple[str, _Values]:
    """For lists in claim order, which read by queue."""
    conditions, values = _conditions(where)
    if where.statuses:
        conditions.append(_in("r.status", len(where.statuses)))
        values += sorted(where.statuses)
    if where.workflow_name is not None:
        conditions.append("r.workflow_name = ?")
        values.append(where.workflow_name)
    return "".join(f" and {condition}" for condition in conditions), values


def _conditions(where: RunFilter) -> tuple[list[str], _Values]:
    """All but status and workflow."""
    conditions: list[str] = []
    values: _Values = []
    if where.queue is not None:
        conditions.append("r.queue = ?")
        values.append(where.queue)
    if where.owner_id is not None:
        conditions.append("r.owner_id = ?")
        values.append(where.owner_id)
    if where.held or where.canceling:
        conditions.append("r.owner_id is not null")
    if where.canceling:
        conditions.append("r.cancel_requested_at is not null")
    if where.unapproved:
        conditions.append("r.readiness = 3")
    if where.created_from is not None:
        # Creation times never fall with seq: a bound in time is a bound in numbers.
        conditions.append(
            "r.seq >= (select min(seq) from runs where created_at = "
            "(select min(created_at) from runs where created_at >= ?))"
        )
        values.append(micros(where.created_from))
    if where.created_to is not None:
        conditions.append(
            "r.seq <= (select max(seq) from runs where created_at = "
            "(select max(created_at) from runs where created_at < ?))"
        )
        values.append(micros(where.created_to))
    for key, value in where.labels.items():
        conditions.append(
            "exists (select 1 from run_labels l where l.key = ? and l.value = ? and l.seq = r.seq)"
        )
        values += [key, value]
    return conditions, values


def _ordered(where: RunFilter, conditions: str, values: _Values, limit: int) -> tuple[str, _Values]:
    tail = f"{conditions} order by r.seq desc limit ?"
    few = _index_of_few(where)
    if few is not None:
        extra, more = _status_and_workflow(where)
        source = f"runs r indexed by {few}"
        return f"select r.seq from {source} where {extra}{tail}", [*more, *values, limit]
    if where.labels:
        return _driven_by_label(where, conditions, values, limit)
    if not where.statuses and where.workflow_name is None and where.queue is None:
        return f"select r.seq from runs r where {tail}", [*values, limit]
    parts: list[str] = []
    bound: _Values = []
    for status in sorted(where.statuses or set(RunStatus)):
        named = "" if where.workflow_name is None else "r.workflow_name = ? and "
        parts.append(
            f"select * from (select r.seq from runs r where {named}r.status = ? and {tail})"
        )
        bound += [*([where.workflow_name] if named else []), status, *values, limit]
    merged = " union all ".join(parts)
    return f"select seq from ({merged}) order by seq desc limit ?", [*bound, limit]


def _index_of_few(where: RunFilter) -> str | None:
    """Runs with an owner, or waiting for approval, are few: read them first."""
    if where.owner_id is not None or where.held or where.canceling:
        return "runs_by_owner"
    return "runs_unapproved" if where.unapproved else None


def _driven_by_label(
    where: RunFilter, conditions: str, values: _Values, limit: int
) -> tuple[str, _Values]:
    """A label is the most selective condition on ended runs."""
    key, value = next(iter(where.labels.items()))
    extra, more = _status_and_workflow(where)
    statement = (
        "select r.seq from run_labels d cross join runs r on r.seq = d.seq "
        f"where d.key = ? and d.value = ? and {extra}{conditions} order by d.seq desc limit ?"
    )
    return statement, [key, value, *more, *values, limit]


def _status_and_workflow(where: RunFilter) -> tuple[str, _Values]:
    text = ""
    values: _Values = []
    if where.statuses:
        text += f"{_in('r.status', len(where.statuses))} and "
        values += sorted(where.statuses)
    if where.workflow_name is not None:
        text += "r.workflow_name = ? and "
        values.append(where.workflow_name)
    return text, values


def _in(column: str, count: int) -> str:
    return f"{column} in ({', '.join('?' * count)})"
