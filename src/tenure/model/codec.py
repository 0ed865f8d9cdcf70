"""Records as bytes, with the number of the schema that wrote them, and which values can be stored.

For stores that keep whole records and for anything that leaves the process. A record of a newer
schema is refused (``StoreIncompatible``) instead of guessing at its meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from math import isfinite
from typing import Any, TypeVar

import msgspec

from tenure.model.errors import (
    InvalidRunId,
    RunNotFound,
    StoreIncompatible,
    StoreRejected,
    TenureError,
)
from tenure.model.ids import check_run_id
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import NewRun, Write, run_id_of

SCHEMA = 1

T = TypeVar("T")

_encoder = msgspec.json.Encoder()
_SPARE_CHECK_MIN_BRACKETS = 300
_SPARE_CHECK_MIN_BYTES = 1500
_SPARE_DEPTH = 50
UNSTORABLE = (TypeError, ValueError, RecursionError, msgspec.MsgspecError)
"""What encoding raises for a value that cannot be written down."""


class _Envelope(msgspec.Struct, frozen=True):
    schema: int
    run: msgspec.Raw


_envelopes = msgspec.json.Decoder(_Envelope)
_snapshots = msgspec.json.Decoder(RunSnapshot)
_batches_with_spare_depth: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
    reduce(lambda inner, _: list[inner], range(_SPARE_DEPTH), list[Write])  # type: ignore[valid-type]
)


def encode_snapshot(snapshot: RunSnapshot) -> bytes:
    return encode_versioned(snapshot)


def decode_snapshot(data: bytes) -> RunSnapshot:
    return decode_versioned(_snapshots, data)


def encode_versioned(run: Any) -> bytes:
    """``run`` in any form that a store keeps, wrapped with the schema number."""
    return encode(_Envelope(SCHEMA, msgspec.Raw(encode(run))))


def decode_versioned(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    envelope = decode(_envelopes, data)
    if envelope.schema > SCHEMA:
        raise StoreIncompatible(
            f"this record was written with schema {envelope.schema}; this version of Tenure reads "
            f"up to {SCHEMA}. Upgrade Tenure on this machine"
        )
    return decode(decoder, bytes(envelope.run))


def encode(value: Any) -> bytes:
    return _encoder.encode(value)


def decode(decoder: msgspec.json.Decoder[T], data: bytes | str) -> T:
    """Decode a stored value. ``StoreIncompatible`` if it is damaged."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreIncompatible(f"a stored record cannot be read: {error}") from error


def full_record(value: Any) -> Any:
    """Plain data with every field, unset ones as null, as shown to users and by the API."""
    if isinstance(value, msgspec.Struct):
        return {name: full_record(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: full_record(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [full_record(item) for item in value]
    return msgspec.to_builtins(value)


def storable(run_id: str, value: T) -> T:
    """A copy of ``value`` as a later reader will find it.

    ``StoreRejected`` if it cannot be encoded and decoded again: a lone surrogate, a value of the
    wrong type, an unknown object, nesting without end. So no value makes its run unreadable, or
    fails the batch that it is part of.
    For an invalid id: ``InvalidRunId`` for a new run, ``RunNotFound`` for any other value.
    """
    try:
        data = _encoder.encode(value)
        if (
            len(data) > _SPARE_CHECK_MIN_BYTES
            and data.count(b"[") + data.count(b"{") > _SPARE_CHECK_MIN_BRACKETS
        ):
            msgspec.json.decode(_with_spare_depth(data))
        copy = _decoder(type(value)).decode(data)
    except UNSTORABLE as error:
        _check_run_may_exist(run_id, value)
        raise StoreRejected(run_id, f"cannot be stored: {error}") from error
    # NaN and infinity differ from the null they were written as.
    if b"null" in data and copy != value and _has_no_number(msgspec.to_builtins(value)):
        raise StoreRejected(run_id, "cannot be stored: NaN and infinity have no form in JSON")
    return copy


def storable_together(writes: Sequence[Write]) -> list[Write] | None:
    """All of them as ``storable`` returns them, at a fraction of the cost. ``None`` if one of them
    may be invalid: then each has to be checked separately."""
    try:
        data = _encoder.encode(writes)
        nested = _batches_with_spare_depth.decode(_with_spare_depth(data))
    except UNSTORABLE:
        return None
    for _ in range(_SPARE_DEPTH):
        (nested,) = nested
    copies: list[Write] = nested
    return None if b"null" in data and copies != list(writes) else copies


def _with_spare_depth(data: bytes) -> bytes:
    """How deep one can decode depends on the reader's stack: leave room."""
    return b"[" * _SPARE_DEPTH + data + b"]" * _SPARE_DEPTH


def _check_run_may_exist(run_id: str, value: object) -> None:
    """An invalid id is the first thing wrong: no run can have it."""
    try:
        check_run_id(run_id)
    except InvalidRunId:
        if isinstance(value, NewRun):
            raise
        raise RunNotFound(run_id) from None


def _has_no_number(value: Any) -> bool:
    """NaN or infinity, which would be written as null."""
    if isinstance(value, float):
        return not isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_no_number, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_no_number, value))


def copied(value: T) -> T:
    """A value that shares no memory with its original."""
    return _decoder(type(value)).decode(_encoder.encode(value))


_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    return decoder


_MIN_MOMENT = datetime(2, 1, 1, tzinfo=UTC)
_MAX_MOMENT = datetime(9998, 12, 31, tzinfo=UTC)
"""Outside of these bounds a moment has no form in some other time zone."""


def why_not_kept(moment: datetime) -> str | None:
    """Why this moment cannot be stored; ``None`` if it can."""
    if moment.tzinfo is None:
        return f"{moment.isoformat()} does not say its time zone"
    if not _MIN_MOMENT <= moment <= _MAX_MOMENT:
        return f"{moment.isoformat()} is not between the years 2 and 9998"
    return None


# The writes of a batch: checked and copied.


def incoming(writes: Sequence[Write]) -> list[Write | TenureError]:
    """The result of ``storable`` for each, or its error."""
    distinct = without_repeats(writes)
    if any(isinstance(each, TenureError) for each in distinct):
        return [_checked(each) for each in distinct]
    return checked(writes)


def without_repeats(writes: Sequence[Write]) -> list[Write | TenureError]:
    """The writes, unchecked; an error for a second one of the same run, or without a run."""
    seen: set[str] = set()
    distinct: list[Write | TenureError] = []
    for write in writes:
        try:
            run_id = run_id_of(write)
        except StoreRejected as refusal:
            distinct.append(refusal)
            continue
        repeated = StoreRejected(run_id, "is written twice in one batch")
        distinct.append(repeated if run_id in seen else write)
        seen.add(run_id)
    return distinct


def checked(writes: Sequence[Write]) -> list[Write | TenureError]:
    """All at once if all are valid; else one by one."""
    together = storable_together(writes)
    return [_checked(write) for write in writes] if together is None else [*together]


def _checked(write: Write | TenureError) -> Write | TenureError:
    if isinstance(write, TenureError):
        return write
    try:
        return storable(run_id_of(write), write)
    except TenureError as refusal:
        return refusal
