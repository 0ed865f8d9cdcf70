"""Whole records (each one statement, for consistency), lists, histories and the feed of all runs.

Lists are pages by keyset: each page costs the same, however long the history. Their statements are
built from fixed fragments, with every value bound. A filter by workflow, queue or statuses reads
one ordered index range for each status, and merges the few rows of each with matching runs that
have an owner, which are in none of these ranges.

The feed must not get rows before a reader's cursor, but commits become visible in another order
than they began in, so a sequence will not do. Each row of the journal has the id of its transaction
(or that of the run's version before it, if higher), and the feed is read up to the oldest
transaction still running, below which nothing is added.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from copy import copy
from datetime import datetime
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from tenure.model.codec import decode
from tenure.model.errors import RunNotFound
from tenure.model.query import (
    Ownership,
    Page,
    RunFilter,
    bounded_limit,
    decode_cursor,
    encode_cursor,
)
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.model.status import TERMINAL_RUN, Recovery, RunStatus
from tenure.model.update import Event, FeedPage, Position, RecordedEvent, record
from tenure.ports.store import Census, QueueLength
from tenure.stores.postgres.errors import DATA_ERRORS
from tenure.stores.postgres.pools import Connections, Purpose
from tenure.stores.postgres.rows import can_exist, must_exist, readable, snapshot_of, summary_of
from tenure.stores.postgres.statements import FRAGMENTS, SQL, Values, newest_of

_NEWEST = 1 << 62
_MAX_READ_TOGETHER = 100
_LAST_SEQ = (1 << 63) - 1
_DISORDER = "interval '1 hour'"
"""A bound on how far the order of numbers may differ from that of creation times (in practice
seconds); it only limits the range that is read."""
_HELD = "select * from tenure.runs o where o.owner_id is not null offset 0"

_journal = msgspec.json.Decoder(tuple[int, datetime, int, tuple[Event, ...]])
_changes = msgspec.json.Decoder(tuple[int, int, int, datetime, int, tuple[Event, ...], str])
_text = msgspec.json.Decoder(str)


class _Reads:
    """Reads of single runs in one event loop; those made while others are in progress share the
    next trip."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, asyncio.Future[str | None]]] = []
        self.readers: set[asyncio.Task[None]] = set()
        self.in_progress = 0


class RunReads:
    _connections: Connections
    _reads: WeakKeyDictionary[asyncio.AbstractEventLoop, _Reads]

    async def get_run(self, run_id: str) -> RunSnapshot:
        loop = asyncio.get_running_loop()
        reads = self._reads.setdefault(loop, _Reads())
        answer: asyncio.Future[str | None] = loop.create_future()
        reads.waiting.append((must_exist(run_id), answer))
        if reads.in_progress < self._connections.address.connections:
            reads.in_progress += 1
            reader = asyncio.ensure_future(self._read_waiting(reads))
            reads.readers.add(reader)
            reader.add_done_callback(reads.readers.discard)
        text = await answer
        if text is None:
            raise RunNotFound(run_id)
        return snapshot_of(text)

    async def _read_waiting(self, reads: _Reads) -> None:
        try:
            while reads.waiting:
                asked = reads.waiting[:_MAX_READ_TOGETHER]
                del reads.waiting[:_MAX_READ_TOGETHER]
                found: dict[str, str] = {}
                failure: Exception | None = None
                try:
                    async with self._connections.session(Purpose.READING) as session:
                        found = dict(await session.all("runs_by_id", [each for each, _ in asked]))
                except Exception as error:  # noqa: BLE001  raised by the waiting calls
                    failure = error
                for run_id, answer in asked:
                    if answer.done():
                        continue  # cancelled meanwhile
                    if failure is not None:
                        answer.set_exception(copy(failure))
                    else:
                        answer.set_result(found.get(run_id))
        finally:
            reads.in_progress -= 1

    async def versions_of(self, run_ids: Collection[str]) -> dict[str, int]:
        asked = [run_id for run_id in run_ids if can_exist(run_id)]
        async with self._connections.session(Purpose.READING) as session:
            return dict(await session.all("versions_by_id", asked))

    async def get_definition(self, run_id: str) -> str | None:
        async with self._connections.session(Purpose.READING) as session:
            row = await session.first("definition", must_exist(run_id))
        if row is None:
            raise RunNotFound(run_id)
        return None if row[0] is None else decode(_text, row[0])

    async def list_runs(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        (before,) = decode_cursor("runs", cursor, 1) if cursor else (_NEWEST,)
        limit = bounded_limit(limit)
        sql, values = newest(where, before, limit + 1)
        async with self._connections.session(Purpose.READING) as session:
            try:
                # Without statistics the planner assumes that every run has an owner.
                found = await session.carefully(sql, values)
            except DATA_ERRORS:
                found = []  # such a value was never stored
        return Page(
            items=tuple(readable((text for _, text in found[:limit]), summary_of)),
            cursor=encode_cursor("runs", found[limit - 1][0]) if len(found) > limit else None,
        )

    async def list_owners(self) -> list[Ownership]:
        async with self._connections.session(Purpose.READING) as session:
            found = await session.carefully(SQL["owners"], ())
        return [
            Ownership(
                owner_id=owner_id,
                recovery=Recovery(recovery),
                runs=runs,
                lost=lost,
                canceling=canceling,
            )
            for owner_id, recovery, runs, lost, canceling in found
        ]

    async def store_time(self) -> datetime:
        async with self._connections.session(Purpose.READING) as session:
            at: datetime
            (at,) = await session.one("clock")
        return at

    async def take_census(self, *, most: int = 10_000) -> Census:
        async with self._connections.session(Purpose.READING) as session:
            *_, counted, ((waiting, dead),), lengths, _ = await session.together(
                ("begin",),
                ("carefully",),
                ("runs_by_status", most, [status.value for status in RunStatus]),
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

    async def read_events(
        self, run_id: str, after: Position = Position(), *, limit: int = 1000
    ) -> list[RecordedEvent]:
        must_exist(run_id)
        limit = max(limit, 1)
        found: list[RecordedEvent] = []
        async with self._connections.session(Purpose.READING) as session:
            row = await session.first("seq_of_run", run_id)
            if row is None:
                raise RunNotFound(run_id)
            version = after.version
            while len(found) < limit:
                rows = await session.all("journal_after", row[0], version, limit)
                for (text,) in rows:
                    version, at, fence, events = decode(_journal, text)
                    found += (
                        record(event, run_id=run_id, version=version, seq=seq, at=at, fence=fence)
                        for seq, event in enumerate(events)
                        if (version, seq) > after
                    )
                if len(rows) < limit:
                    break
                version += 1
        return found[:limit]

    async def read_changes(self, after: str | None = None, *, limit: int = 1000) -> FeedPage:
        transaction, seq, version = decode_cursor("changes", after, 3) if after else (0, 0, 0)
        async with self._connections.session(Purpose.READING) as session:
            *_, found, _ = await session.together(
                ("begin",),
                ("carefully",),
                ("changes_after", str(transaction), seq, version, bounded_limit(limit)),
                ("commit",),
            )
        events: list[RecordedEvent] = []
        for (text,) in found:
            transaction, seq, version, at, fence, written, run_id = decode(_changes, text)
            events += (
                record(each, run_id=run_id, version=version, seq=number, at=at, fence=fence)
                for number, each in enumerate(written)
            )
        place = encode_cursor("changes", transaction, seq, version)
        return FeedPage(events=tuple(events), cursor=place)

    async def newest_change(self) -> str:
        async with self._connections.session(Purpose.READING) as session:
            (transaction,) = await session.one("oldest_at_work")
        return encode_cursor("changes", int(transaction), 0, 0)


def newest(where: RunFilter, before: int, limit: int) -> tuple[str, list[Any]]:
    """Selects (seq, summary) of matching runs below ``before``, newest first."""
    values = Values()
    border = values.bind(before)
    seqs = _ordered(where, border, values, values.bind(limit))
    statement = (
        f"select u.seq, json_build_array({FRAGMENTS['head']}, s.summary)::text from ({seqs}) u, "
        "lateral (select * from tenure.runs where seq = u.seq limit 1) r, "
        "lateral (select * from tenure.run_specs where seq = u.seq limit 1) s "
        "order by u.seq desc"
    )
    return statement, values.all


def conditions_of(where: RunFilter, values: Values) -> Iterator[str]:
    """All but status and workflow."""
    if where.queue is not None:
        # Neither usable by an index (ranges are for that) nor estimated as rare: reading all rows
        # to sort a few would look cheap.
        yield f"coalesce(r.queue = {values.bind(where.queue)}, false)"
    if where.owner_id is not None:
        yield f"r.owner_id = {values.bind(where.owner_id)}"
    if where.held or where.canceling:
        yield "r.owner_id is not null"
    if where.canceling:
        yield "r.cancel_requested_at is not null"
    if where.unapproved:
        yield "r.readiness = 3"
    if where.created_from is not None:
        yield f"r.created_at >= {values.bind(where.created_from)}::timestamptz"
    if where.created_to is not None:
        yield f"r.created_at < {values.bind(where.created_to)}::timestamptz"
    for key, value in where.labels.items():
        # Not `exists`, which the planner may turn into a join in the wrong order.
        yield (
            f"(select true from tenure.run_labels l where l.key = {values.bind(key)} "
            f"and l.value = {values.bind(value)} and l.seq = r.seq)"
        )


def _lowest(where: RunFilter, values: Values) -> str:
    """A lower bound (inclusive) for the numbers of runs created since ``created_from``."""
    if where.created_from is None:
        return "0"
    return (
        "coalesce((select o.seq from tenure.runs o where o.seq % 64 = 0 and "
        f"o.created_at < {values.bind(where.created_from)}::timestamptz - {_DISORDER} "
        "order by o.created_at desc, o.seq desc limit 1), 0)"
    )


def _above(where: RunFilter, values: Values) -> str:
    """An upper bound (exclusive) for the numbers of runs created before ``created_to``."""
    return (
        "coalesce((select o.seq from tenure.runs o where o.seq % 64 = 0 and "
        f"o.created_at >= {values.bind(where.created_to)}::timestamptz + {_DISORDER} "
        f"order by o.created_at, o.seq limit 1), {_LAST_SEQ})"
    )


def status_and_workflow(where: RunFilter, values: Values) -> Iterator[str]:
    if where.statuses:
        yield f"r.status = any({values.bind(sorted(where.statuses))}::text[])"
    if where.workflow_name is not None:
        yield f"r.workflow_name = {values.bind(where.workflow_name)}"


def _ordered(where: RunFilter, border: str, values: Values, limit: str) -> str:
    tail = f"order by r.seq desc limit {limit}"
    few = _few(where, border, values)
    conditions = list(conditions_of(where, values))
    below, lowest = _bounds(where, border, values)
    by_number = [f"r.seq < {below}", f"r.seq >= {lowest}", *conditions]
    if few is not None:
        both = " and ".join([*by_number, *status_and_workflow(where, values)])
        return f"select r.seq from ({few}) r where {both} {tail}"
    if where.labels:
        return _driven_by_label(where, conditions, values, (below, lowest), limit)
    if not where.statuses and where.workflow_name is None and where.queue is None:
        return f"select r.seq from tenure.runs r where {' and '.join(by_number)} {tail}"
    named: list[tuple[str, str]] = []
    if where.workflow_name is not None:
        named.append(("r.workflow_name", values.bind(where.workflow_name)))
    elif where.queue is not None:
        named.append(("r.queue", values.bind(where.queue)))
    parts: list[str] = []
    for status in sorted(where.statuses or set(RunStatus)):
        equal = [*named, ("r.status", values.bind(status.value))]
        within, order = newest_of(equal, "r.seq", below, lowest)
        parts.append(
            "(select r.seq from tenure.runs r where "
            f"{' and '.join(['r.owner_id is null', within, *conditions])} "
            f"order by {order} limit {limit})"
        )
    if not where.statuses or not where.statuses <= TERMINAL_RUN:
        both = " and ".join([*by_number, *status_and_workflow(where, values)])
        parts.append(f"(select r.seq from ({_HELD}) r where {both} {tail})")
    merged = " union all ".join(parts)
    return f"select p.seq from ({merged}) p order by p.seq desc limit {limit}"


def _bounds(where: RunFilter, border: str, values: Values) -> tuple[str, str]:
    """The upper (exclusive) and lower (inclusive) bounds of the page's numbers."""
    below = border
    if where.created_to is not None:
        below = f"least({border}, {_above(where, values)})"
    return below, _lowest(where, values)


def _few(where: RunFilter, border: str, values: Values) -> str | None:
    """Runs with an owner, or waiting for approval, are few: read them first. ``offset 0`` keeps the
    planner from other indexes."""
    if where.owner_id is not None:
        few = f"o.owner_id = {values.bind(where.owner_id)}"
    elif where.held or where.canceling:
        return _HELD
    elif where.unapproved:
        few = f"o.readiness = 3 and o.seq < {border} order by o.seq desc"
    else:
        return None
    return f"select * from tenure.runs o where {few} offset 0"


def _driven_by_label(
    where: RunFilter, conditions: Sequence[str], values: Values, bounds: tuple[str, str], limit: str
) -> str:
    """A label is the most selective condition on ended runs."""
    key, value = next(iter(where.labels.items()))
    both = " and ".join([*conditions, *status_and_workflow(where, values)])
    equal = [("l.key", values.bind(key)), ("l.value", values.bind(value))]
    within, order = newest_of(equal, "l.seq", *bounds)
    return (
        "select r.seq from tenure.run_labels l, "
        "lateral (select * from tenure.runs where seq = l.seq limit 1) r "
        f"where {within} and {both} order by {order} limit {limit}"
    )
