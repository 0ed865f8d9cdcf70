"""What tasks printed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

Offset = Annotated[int, Meta(ge=0, le=1 << 53)]
OFFSET = "^[0-9]{1,15}$"
Number = Annotated[int, Meta(ge=0, le=1 << 31)]


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


class OutputQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``attempt``: the newest if left out. ``follow``: as server-sent events, until the attempt has
    ended; ``limit`` is then of no meaning."""

    stream: Stream = Stream.STDOUT
    item: Number | None = None
    attempt: Annotated[int, Meta(ge=1, le=1 << 31)] | None = None
    offset: Offset = 0
    limit: Annotated[int, Meta(ge=1, le=1 << 20)] = 65536
    follow: bool = False


class Output(Struct, frozen=True, kw_only=True):
    """``text`` is what stands from ``offset`` up to ``next_offset``, bytes that are no text
    replaced; ``size`` is how much there was."""

    offset: int
    next_offset: int
    size: int
    attempt: int
    text: str


class OutputStream(Struct, frozen=True, kw_only=True):
    """One stream of one attempt; ``item`` of a loop."""

    step: int
    host: str
    stream: str
    item: int | None
    attempt: int


class OutputStreams(Struct, frozen=True, kw_only=True):
    streams: tuple[OutputStream, ...]


class StoredDefinition(Struct, frozen=True, kw_only=True):
    """What a run executes. ``workflow`` is the file's own text; ``files`` are the names of those
    that travel with it; ``stored`` is all of it as the store has it, contents included."""

    run_id: str
    workflow: str | None
    source: str | None
    limit: tuple[str, ...]
    local: bool
    files: tuple[str, ...]
    stored: str
