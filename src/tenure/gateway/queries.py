"""From a query string to a typed value."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar, get_origin, get_type_hints
from urllib.parse import parse_qsl

from msgspec import ValidationError, convert

from tenure.gateway.problems import MALFORMED, Refusal

Q = TypeVar("Q")

_MOST_FIELDS = 100


def read_query(kind: type[Q], several: Collection[str], text: bytes) -> Q:
    """``several`` are the names that may come more than once. ``Refusal`` for what does not fit: an
    unknown name, a value twice, one that is out of bounds."""
    try:
        pairs = _pairs(text.decode("ascii")) if text else []
    except ValueError as error:
        raise Refusal(MALFORMED, "the query string cannot be read") from error
    given: dict[str, Any] = {}
    for name, value in pairs:
        if name in several:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise Refusal(MALFORMED, f"{name[:60]!r} is given more than once")
        else:
            given[name] = value
    try:
        return convert(given, kind, strict=False)
    except ValidationError as error:
        raise Refusal(MALFORMED, f"the query: {error}") from error


def _pairs(text: str) -> list[tuple[str, str]]:
    return parse_qsl(
        text,
        keep_blank_values=True,
        strict_parsing=True,
        errors="strict",
        max_num_fields=_MOST_FIELDS,
    )


def repeatable(kind: type[Any]) -> frozenset[str]:
    hints = get_type_hints(kind)
    return frozenset(name for name, of in hints.items() if get_origin(of) is tuple)
