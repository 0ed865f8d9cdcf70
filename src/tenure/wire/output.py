"""Output of tasks, definitions, and the control messages of streams."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from tenure.wire.leases import Fence, OwnerId

Offset = Annotated[int, Meta(ge=0, le=1 << 53)]
OFFSET = "^[0-9]{1,15}$"
Number = Annotated[int, Meta(ge=0, le=1 << 31)]


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


class OutputQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``attempt``: the newest if left out. ``follow``: as server-sent events, until the attempt has
    ended; ``limit`` is ignored then."""

    stream: Stream = Stream.STDOUT
    item: Number | None = None
    attempt: Annotated[int, Meta(ge=1, le=1 << 31)] | None = None
    offset: Offset = 0
    limit: Annotated[int, Meta(ge=1, le=1 << 20)] = 65536
    follow: bool = False


class Output(Struct, frozen=True, kw_only=True):
    """``text`` is the output from ``offset`` to ``next_offset``, bytes that are not text replaced;
    ``size`` is the present length of the stream."""

    offset: int
    next_offset: int
    size: int
    attempt: int
    text: str


class OutputStream(Struct, frozen=True, kw_only=True):
    """One stream of one attempt; ``item`` is the index in a loop."""

    step: int
    host: str
    stream: str
    item: int | None
    attempt: int


class OutputStreams(Struct, frozen=True, kw_only=True):
    streams: tuple[OutputStream, ...]


class StoredDefinition(Struct, frozen=True, kw_only=True):
    """What a run executes. ``workflow`` is the file's text; ``files`` are the names of the files
    that travel with it; ``stored`` is all of it as stored, contents included."""

    run_id: str
    workflow: str | None
    source: str | None
    limit: tuple[str, ...]
    local: bool
    files: tuple[str, ...]
    stored: str


# Chunks of output: bytes at an offset, in base64.


MAX_APPEND_BYTES = 1 << 20
"""Of one chunk."""
Host = Annotated[str, Meta(max_length=10_000)]
StreamName = Annotated[str, Meta(max_length=10_000)]
"""``stdout`` or ``stderr``; a store keeps any other as well."""
Attempt = Annotated[int, Meta(ge=1, le=1 << 31)]


class ChunkQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    step: Number
    host: Annotated[str, Meta(max_length=1000)]
    stream: Annotated[str, Meta(max_length=200)] = "stdout"
    item: Number | None = None
    attempt: Attempt = 1
    offset: Offset = 0
    limit: Annotated[int, Meta(ge=0, le=MAX_APPEND_BYTES)] = 65536


class Chunk(Struct, frozen=True, kw_only=True):
    """``size`` is the present length of the stream, zero for one that was never written."""

    offset: int
    size: int
    data: bytes


class NewChunk(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``offset`` is the end of the stream; the same bytes at the same place again change nothing,
    so that a request without an answer can be repeated."""

    owner_id: OwnerId
    fence: Fence
    step: Number
    host: Host
    stream: StreamName
    item: Number | None = None
    attempt: Attempt = 1
    offset: Offset
    data: bytes


class Appended(Struct, frozen=True, kw_only=True):
    """The new end of the stream."""

    size: int


# Control messages of streams, besides events and output: the data of a server-sent event of that
# name.


class RunEnded(Struct, frozen=True, kw_only=True):
    """``end``: the run has ended, and all its events were sent. Do not reconnect."""

    run_id: str
    status: str


class OutputEnded(Struct, frozen=True, kw_only=True):
    """``end``: the attempt has ended, and all its output was sent. Do not reconnect."""

    run_id: str
    attempt: int
    size: int


class Interrupted(Struct, frozen=True, kw_only=True):
    """``closing``: this gateway stops. ``dropped``: the reader was too slow. Reconnect,
    here or elsewhere, with ``after`` as ``Last-Event-ID``."""

    after: str | None
