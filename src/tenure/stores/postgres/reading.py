"""Whole records, lists and histories. A record is one statement, so of one moment."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec

from tenure.model.codec import decode
from tenure.model.errors import RunNotFound, StoreIncompatible, TenureError
from tenure.model.query import (
    Ownership,
    Page,
    RunFilter,
    bounded_limit,
    decode_cursor,
    encode_cursor,
)
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.model.status import Recovery
from tenure.model.update import Event, Position, RecordedEvent, record
from tenure.stores.postgres.connections import Connections, Purpose
from tenure.stores.postgres.failures import DATA_ERRORS
from tenure.stores.postgres.gathering import Gathering
from tenure.stores.postgres.listing import newest
from tenure.stores.postgres.names import can_exist, must_exist
from tenure.stores.postgres.rows import snapshot_of, summary_of
from tenure.stores.postgres.statements import SQL
from tenure.stores.postgres.unreadable import readable, run_id_in
from tenure.stores.postgres.watched import Row

_NEWEST = 1 << 62
_journal = msgspec.json.Decoder(tuple[int, datetime, int, tuple[Event, ...]])
_text = msgspec.json.Decoder(str)


class Reading:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._snapshots = Gathering(self._read_snapshots, connections.address.connections)

    async def snapshot(self, run_id: str) -> RunSnapshot:
        return await self._snapshots.get(must_exist(run_id))

    async def _read_snapshots(self, run_ids: Sequence[str]) -> dict[str, RunSnapshot | TenureError]:
        async with self._connections.session(Purpose.READING) as session:
            found = await session.all("runs_by_id", run_ids)
        snapshots: dict[str, RunSnapshot | TenureError] = {}
        for (text,) in found:
            try:
                snapshot = snapshot_of(text)
            except StoreIncompatible as wrong:
                snapshots[run_id_in(text)] = wrong  # for who asked for that one
            else:
                snapshots[snapshot.run_id] = snapshot
        return snapshots

    async def versions(self, run_ids: Collection[str]) -> dict[str, int]:
        asked = [run_id for run_id in run_ids if can_exist(run_id)]
        async with self._connections.session(Purpose.READING) as session:
            return dict(await session.all("versions_by_id", asked))

    async def definition(self, run_id: str) -> str | None:
        (text,) = await self._of_run("definition", run_id)
        return None if text is None else decode(_text, text)

    async def page(self, where: RunFilter, limit: int, cursor: str | None) -> Page[RunSummary]:
        (before,) = decode_cursor("runs", cursor, 1) if cursor else (_NEWEST,)
        limit = bounded_limit(limit)
        sql, values = newest(where, before, limit + 1)
        async with self._connections.session(Purpose.READING) as session:
            try:
                # To a planner without statistics every run looks as if it had an owner.
                found = await session.carefully(sql, values)
            except DATA_ERRORS:
                found = []  # what cannot be written down was never stored
        return Page(
            items=tuple(readable((text for _, text in found[:limit]), summary_of)),
            cursor=encode_cursor("runs", found[limit - 1][0]) if len(found) > limit else None,
        )

    async def owners(self) -> list[Ownership]:
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

    async def time(self) -> datetime:
        """As of now, not as heard a moment ago."""
        async with self._connections.session(Purpose.READING) as session:
            at: datetime
            (at,) = await session.one("clock")
        return at

    async def events(self, run_id: str, after: Position, limit: int) -> list[RecordedEvent]:
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

    async def _of_run(self, name: str, run_id: str) -> Row:
        must_exist(run_id)
        async with self._connections.session(Purpose.READING) as session:
            row = await session.first(name, run_id)
        if row is None:
            raise RunNotFound(run_id)
        return row
