"""What one line of a journal says, and how a run is made from lines.

A record holds the write as it was accepted: the effect that was chosen, the instant, and the
version and fence that came of it. So replaying asks nobody anything (no clock, no lock, no
judgement), and ends at the same run or says that it did not.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import cast

import msgspec
from msgspec.structs import replace

from tenure.model.codec import encode
from tenure.model.decide import Applied, apply
from tenure.model.errors import StoreIncompatible, StoreRejected, TenureError
from tenure.model.leases import create
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import NewRun, RecordedEvent, Update, Write, record, run_id_of
from tenure.stores.file.frames import MAX_PAYLOAD

SCHEMA = 1


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    schema: int
    version: int
    fence: int
    at: datetime
    order: int = 0
    """Place of the run among its siblings; of its creation only."""
    write: Write


class _Head(msgspec.Struct, frozen=True):
    schema: int


_records = msgspec.json.Decoder(Record)
_heads = msgspec.json.Decoder(_Head)


def creation_record(new: NewRun, born: RunSnapshot, at: datetime, order: int) -> Record:
    return Record(
        schema=SCHEMA, version=born.version, fence=born.fence, at=at, order=order, write=new
    )


def update_record(update: Update, applied: Applied, at: datetime) -> Record:
    """``applied`` must have an effect: what is not written has no record."""
    run = applied.snapshot
    if applied.effect is not None:
        update = replace(update, effect=applied.effect, if_unowned=None)
    return Record(
        schema=SCHEMA,
        version=run.version,
        fence=run.fence,
        at=run.updated_at or at,
        write=update,
    )


def encode_record(record: Record) -> bytes:
    run_id = run_id_of(record.write)
    payload = encode(record)
    if len(payload) > MAX_PAYLOAD:
        raise StoreRejected(run_id, "cannot be stored: one write is larger than 4 GiB")
    return payload


def decode_record(payload: bytes, place: str) -> Record:
    """``place`` names file and offset for whoever has to look."""
    try:
        record = _records.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        _check_schema(_schema_of(payload), place)
        raise StoreIncompatible(f"{place}: not a record of Tenure's: {error}") from error
    _check_schema(record.schema, place)
    return record


class NewerSchema(Exception):
    """Why a record cannot be read that is sound, as far as this version of Tenure can tell."""


def _check_schema(schema: int, place: str) -> None:
    if schema > SCHEMA:
        raise StoreIncompatible(
            f"{place}: written with schema {schema}; this version of Tenure reads up to {SCHEMA}. "
            "Upgrade Tenure on this machine"
        ) from NewerSchema(schema)


def _schema_of(payload: bytes) -> int:
    try:
        return _heads.decode(payload).schema
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return 0


def replay(run: RunSnapshot | None, record: Record, place: str) -> RunSnapshot:
    """The run after ``record``. Nothing is judged: it was, before it was written."""
    if (run is None) != isinstance(record.write, NewRun):
        raise StoreIncompatible(f"{place}: a creation must stand first, and only there")
    try:
        after = _after(run, record)
    except TenureError as error:
        raise StoreIncompatible(f"{place}: no longer makes sense: {error}") from error
    if (after.version, after.fence) != (record.version, record.fence):
        raise StoreIncompatible(
            f"{place}: says version {record.version} at fence {record.fence}, but what stands "
            f"before it leads to version {after.version} at fence {after.fence}"
        )
    return after


def _after(run: RunSnapshot | None, record: Record) -> RunSnapshot:
    write = record.write
    if run is None or isinstance(write, NewRun):
        return create(cast(NewRun, write), record.at)
    return apply(run, write, at=record.at, checks=()).snapshot


def events_of(entry: Record) -> Iterator[RecordedEvent]:
    write = entry.write
    events = write.events if isinstance(write, NewRun) else write.effect.events
    for seq, event in enumerate(events):
        yield record(
            event,
            run_id=run_id_of(write),
            version=entry.version,
            seq=seq,
            at=entry.at,
            fence=entry.fence,
        )
