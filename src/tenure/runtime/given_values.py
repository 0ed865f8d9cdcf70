"""Values that a caller gives a run: whether a record can hold them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from math import isfinite
from typing import Any

from tenure.model.codec import UNSTORABLE, encode

_MOST_TOLD = 10


def problems_of_values(name: str, values: Mapping[str, Any]) -> list[str]:
    """What no record can hold, by its place: ``vars.x[0].y``. Who gives what can be kept pays next
    to nothing for it."""
    try:
        # A number that is none is written as null.
        if not values or b"null" not in encode(dict(values)):
            return []
    except UNSTORABLE:
        pass
    try:
        return list(islice(_faults(name, dict(values)), _MOST_TOLD))
    except RecursionError:
        return [f"{name} holds something nested without end"]


def _faults(place: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _faults(f"{place}.{key}", each)
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from _faults(f"{place}[{index}]", each)
    elif isinstance(value, float):
        if not isfinite(value):
            yield f"{place} is {value}, a number that has no form in JSON"
    else:
        yield from _fault_of(place, value)


def _fault_of(place: str, value: object) -> Iterator[str]:
    try:
        encode(value)
    except UnicodeEncodeError:
        yield f"{place} is text that is no Unicode"
    except UNSTORABLE:
        kind = type(value).__name__
        yield (
            f"{place} is of the type {kind}, which no record can hold: give text, a number, True, "
            "False, None, a list or a map of these"
        )
