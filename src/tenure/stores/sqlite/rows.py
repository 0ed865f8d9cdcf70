"""Statements by name, from ``queries.sql``; rows of runs as values of the model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

import apsw
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tenure.model.codec import decode
from tenure.model.errors import StoreIncompatible
from tenure.model.snapshot import Counts, RunSnapshot
from tenure.model.status import Recovery, RunStatus
from tenure.stores.lease_clock import LeaseEnd
from tenure.stores.rows import Detail, text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def moment(value: int) -> datetime:
    return _EPOCH + timedelta(microseconds=value)


def micros_or_none(value: datetime | None) -> int | None:
    return None if value is None else micros(value)


def moment_or_none(value: int | None) -> datetime | None:
    return None if value is None else moment(value)


_details = msgspec.json.Decoder(Detail)
_counts = msgspec.json.Decoder(Counts)

_NO_DETAIL = Detail()
_DETAIL_FIELDS = Detail.__struct_fields__


class Head(Struct, frozen=True, gc=False):
    """A row of ``runs``: the record without steps and spec, and the lease beside it."""

    seq: int
    run: RunSnapshot
    claim_id: str | None
    lease_until: LeaseEnd | None
    counts: str
    detail: str | None


HEAD_COLUMNS = (
    "r.seq, r.run_id, r.workflow_name, r.status, r.version, r.fence, r.owner_id, r.claim_id, "
    "r.lease_boot, r.lease_until, r.lease_wall, r.takeovers, r.takeovers_without_progress, "
    "r.recovery, r.queue, r.rank, r.cancel_requested_at, r.created_at, r.started_at, "
    "r.finished_at, r.updated_at, r.counts, r.detail"
)


def head_of(row: Sequence[Any]) -> Head:
    (
        seq,
        run_id,
        workflow_name,
        status,
        version,
        fence,
        owner_id,
        claim_id,
        lease_boot,
        lease_until,
        lease_wall,
        takeovers,
        takeovers_without_progress,
        recovery,
        queue,
        rank,
        cancel_requested_at,
        created_at,
        started_at,
        finished_at,
        updated_at,
        counts,
        detail,
    ) = row
    more = _NO_DETAIL if detail is None else decode(_details, detail)
    run = RunSnapshot(
        run_id=run_id,
        workflow_name=workflow_name,
        status=RunStatus(status),
        version=version,
        fence=fence,
        owner_id=owner_id,
        takeovers=takeovers,
        takeovers_without_progress=takeovers_without_progress,
        recovery=Recovery(recovery),
        queue=queue,
        priority=-rank,
        cancel_requested_at=moment_or_none(cancel_requested_at),
        created_at=moment(created_at),
        started_at=moment_or_none(started_at),
        finished_at=moment_or_none(finished_at),
        updated_at=moment(updated_at),
        counts=decode(_counts, counts),
        message=more.message,
        error=more.error,
        last_error=more.last_error,
        interrupted_reason=more.interrupted_reason,
        cancel_reason=more.cancel_reason,
        unconfirmed_hosts=more.unconfirmed_hosts,
        approval=more.approval,
        annotations=more.annotations,
        callback_error=more.callback_error,
    )
    until = None if lease_until is None else LeaseEnd(lease_boot, lease_until, moment(lease_wall))
    return Head(seq, run, claim_id, until, counts, detail)


def current(head: Head, mark: tuple[Any, ...] | None) -> Head | None:
    """``head`` with its current lease, or ``None`` if ``mark`` shows that it was written since."""
    if mark is None:
        return None
    version, updated_at, fence, detail, claim_id, boot_id, nanoseconds, wall = mark
    run, end = head.run, head.lease_until
    if version != run.version or fence != run.fence or detail != head.detail:
        return None
    if updated_at != micros_or_none(run.updated_at):
        return None
    if nanoseconds == (end and end.nanoseconds) and claim_id == head.claim_id:
        return head
    moved = None if nanoseconds is None else LeaseEnd(boot_id, nanoseconds, moment(wall))
    return replace(head, claim_id=claim_id, lease_until=moved)


def detail_text(run: RunSnapshot, old: Head | None = None) -> str | None:
    if old is not None and _same_detail(run, old.run):
        return old.detail
    detail = Detail(*(getattr(run, name) for name in _DETAIL_FIELDS))
    return None if detail == _NO_DETAIL else text(detail)


def _same_detail(run: RunSnapshot, old: RunSnapshot) -> bool:
    return (
        run.message is old.message
        and run.error is old.error
        and run.last_error is old.last_error
        and run.interrupted_reason is old.interrupted_reason
        and run.cancel_reason is old.cancel_reason
        and run.unconfirmed_hosts is old.unconfirmed_hosts
        and run.approval is old.approval
        and run.annotations is old.annotations
        and run.callback_error is old.callback_error
    )


def counts_text(run: RunSnapshot, old: Head | None = None) -> str:
    if old is not None and run.counts is old.run.counts:
        return old.counts
    return text(run.counts)


def ready_at(run: RunSnapshot, created_at: datetime) -> int:
    """A ``run_after`` before its creation makes no run older."""
    return micros(max(run.run_after or created_at, created_at))


def lease_columns(end: LeaseEnd | None) -> tuple[str | None, int | None, int | None]:
    """``lease_boot``, ``lease_until``, ``lease_wall``."""
    return (None, None, None) if end is None else (*end[:2], micros(end.wall))


DELIVERY = (
    "json_array(d.id, r.run_id, r.workflow_name, json(s.callbacks), d.target, json(d.event), "
    "d.run_status, d.state, d.attempts, d.due_at, d.settled_at, d.died_at, d.last_error, "
    "d.redelivery, d.token, d.settled_token, d.seq, d.number)"
)
"""One JSON text for many rows: each row fetched on its own costs a switch of the GIL."""
DELIVERY_TABLES = "deliveries d join runs r on r.seq = d.seq join run_specs s on s.seq = d.seq"
_FRAGMENTS = {"head": HEAD_COLUMNS, "delivery": DELIVERY, "delivery_tables": DELIVERY_TABLES}
_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


def load(text: str) -> dict[str, str]:
    """Statements by name, without comments."""
    parts = _NAME.split(text)[1:]
    return {
        name: "\n".join(
            line for line in body.splitlines() if line.strip() and not line.startswith("--")
        )
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


def _load_shipped() -> dict[str, str]:
    text = (files("tenure.stores.sqlite") / "queries.sql").read_text(encoding="utf-8")
    for name, fragment in _FRAGMENTS.items():
        text = text.replace(f"{{{name}}}", fragment)
    return load(text)


SQL = _load_shipped()

Row = tuple[Any, ...]


class Statements:
    """The named statements on one connection.

    ``later`` gathers writes for one ``executemany`` per statement; they must be flushed before the
    commit, or dropped after a failure. A query for a text that cannot be encoded finds nothing.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._execute = connection.execute
        self._executemany = connection.executemany
        self._changes = connection.changes
        self._gathered: dict[str, list[Row]] = {}

    def later(self, name: str, *values: Any) -> None:
        gathered = self._gathered.get(name)
        if gathered is None:
            self._gathered[name] = [values]
        else:
            gathered.append(values)

    def flush(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for name, values in gathered.items():
            self._executemany(SQL[name], values)

    def drop(self) -> bool:
        """Returns whether there were any."""
        gathered, self._gathered = self._gathered, {}
        return bool(gathered)

    def do(self, name: str, *values: Any) -> None:
        self._execute(SQL[name], values)

    def count(self, name: str, *values: Any) -> int:
        """The number of rows changed."""
        self._execute(SQL[name], values)
        return self._changes()

    def written(self, name: str, *values: Any) -> Row | None:
        """The ``returning`` row of a write, if any."""
        return self._execute(SQL[name], values).fetchone()

    def all(self, name: str, *values: Any) -> list[Row]:
        return self.built(SQL[name], values)

    def each(self, name: str, *values: Any) -> Iterator[Row]:
        """Row by row, for callers that may stop before the end."""
        return self.each_built(SQL[name], values)

    def first(self, name: str, *values: Any) -> Row | None:
        try:
            return self._execute(SQL[name], values).fetchone()
        except UnicodeEncodeError:
            return None

    def one(self, name: str, *values: Any) -> Row:
        """The row. ``StoreIncompatible`` if there is none."""
        row: Row | None = self._execute(SQL[name], values).fetchone()
        if row is None:
            raise StoreIncompatible(f"the database lacks a row that {name} needs")
        return row

    def built(self, statement: str, values: Sequence[Any]) -> list[Row]:
        """For a statement built from fixed fragments, with bound values."""
        return list(self.each_built(statement, values))

    def each_built(self, statement: str, values: Sequence[Any]) -> Iterator[Row]:
        try:
            return iter(self._execute(statement, values))
        except UnicodeEncodeError:
            return iter(())
