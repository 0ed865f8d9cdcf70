"""Server-sent events as bytes."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

K = TypeVar("K")

MEDIA_TYPE = "text/event-stream"
OPENING = b"retry: 1000\n\n"
"""Browsers that lose the line come back after a second."""
HEARTBEAT = b": still here\n\n"


class Frame(NamedTuple, Generic[K]):
    """``place``: whoever has it goes on behind it."""

    place: K
    data: bytes


def message(value: Any, *, kind: str | None = None, place: object = None) -> bytes:
    """JSON has no line breaks of its own, so the data is one line. Without ``kind`` it is what
    browsers call ``message``."""
    head = b"" if place is None else b"id: %b\n" % str(place).encode()
    if kind is not None:
        head += b"event: %b\n" % kind.encode()
    return b"%bdata: %b\n\n" % (head, msgspec.json.encode(value))
