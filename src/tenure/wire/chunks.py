"""Output as its writer sends it and as programs read it: bytes, at an offset. In base64."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from tenure.wire.leases import Fence, OwnerId
from tenure.wire.output import Number, Offset

MOST_BYTES = 1 << 20
"""Of one chunk."""
Host = Annotated[str, Meta(max_length=10_000)]
Stream = Annotated[str, Meta(max_length=10_000)]
"""``stdout`` or ``stderr``; a store keeps any other as well."""
Attempt = Annotated[int, Meta(ge=1, le=1 << 31)]


class ChunkQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    step: Number
    host: Annotated[str, Meta(max_length=1000)]
    stream: Annotated[str, Meta(max_length=200)] = "stdout"
    item: Number | None = None
    attempt: Attempt = 1
    offset: Offset = 0
    limit: Annotated[int, Meta(ge=0, le=MOST_BYTES)] = 65536


class Chunk(Struct, frozen=True, kw_only=True):
    """``size`` is how much there was; nothing of a stream that was never written."""

    offset: int
    size: int
    data: bytes


class NewChunk(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``offset`` is where the stream ended; the same bytes at the same place again change nothing,
    so that a request whose answer was lost can be sent again."""

    owner_id: OwnerId
    fence: Fence
    step: Number
    host: Host
    stream: Stream
    item: Number | None = None
    attempt: Attempt = 1
    offset: Offset
    data: bytes


class Appended(Struct, frozen=True, kw_only=True):
    """Where the stream ends now."""

    size: int
