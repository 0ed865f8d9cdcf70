"""Server-sent events, taken apart as they come."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import NamedTuple

from tenure.model.errors import StoreIncompatible

_LONGEST = 64 << 20
"""Bytes of one message: far more than any event or piece of output has."""


class Message(NamedTuple):
    """``kind`` is ``message`` for what one came for; ``place`` is where it stands, if told."""

    kind: str
    place: str | None
    data: bytes


async def messages_in(pieces: AsyncIterator[bytes]) -> AsyncGenerator[Message]:
    """However they are cut. One that is not whole is left out: its line was lost."""
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n\n")
        if len(rest) > _LONGEST:
            raise StoreIncompatible("what comes as a stream of events is none")
        for block in whole:
            message = _read(block)
            if message.data:
                yield message


def _read(block: bytes) -> Message:
    """A comment is a sign of life, and has no data."""
    fields: dict[bytes, bytes] = {}
    for line in block.splitlines():
        name, _, value = line.partition(b":")
        fields[name] = value.removeprefix(b" ")
    place = fields.get(b"id")
    return Message(
        kind=fields.get(b"event", b"message").decode("utf-8", "replace"),
        place=None if place is None else place.decode("utf-8", "replace"),
        data=fields.get(b"data", b""),
    )
