"""One request as its handler sees it, and what the handler answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Generic, TypeVar

from msgspec import Struct

from tenure.gateway.live.watched import Part
from tenure.gateway.parts import Parts
from tenure.gateway.roles import Caller

Q = TypeVar("Q")
B = TypeVar("B")


class Call(Struct, Generic[Q, B], frozen=True, gc=False, kw_only=True):
    """Checked by its route before a handler gets it: the caller may ask this, ``query`` and
    ``body`` are of their types and sizes."""

    parts: Parts
    caller: Caller
    path: Mapping[str, str]
    query: Q
    body: B
    headers: Mapping[str, str]


class Answer(Struct, frozen=True, gc=False, kw_only=True):
    """``value`` is shown as the type that the route declares for its status."""

    value: Any = None
    status: int = 200
    headers: Mapping[str, str] = {}


class RawAnswer(Struct, frozen=True, gc=False, kw_only=True):
    """Bytes as they are; ``packed``: the same, compressed once for all who want it so."""

    body: bytes
    media_type: str
    packed: bytes | None = None
    status: int = 200
    headers: Mapping[str, str] = {}


class StreamAnswer(Struct, frozen=True, gc=False, kw_only=True):
    """Server-sent events, as they come. Whoever sends them closes ``parts``."""

    parts: AsyncGenerator[Part[Any], None]
