"""Shapes with every field: what a stored record leaves out to be small, a reader is shown.

Made from the model's own types, so that no second list of fields can fall behind the first.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct, convert, defstruct

from tenure.wire.problem import Problem

_TIME = Annotated[datetime, Meta(extra_json_schema={"format": "date-time"})]


@cache
def full(kind: Any) -> Any:
    """``kind`` with all structs in it written out whole: no field has a default, so each is in the
    JSON and in its schema required."""
    if kind is Problem:  # says only what applies, wherever it stands
        return kind
    if isinstance(kind, type) and issubclass(kind, Struct):
        hints = get_type_hints(kind, include_extras=True)
        fields = [(name, full(hints[name])) for name in kind.__struct_fields__]
        said = {"__doc__": kind.__doc__, "__module__": kind.__module__}
        return defstruct(kind.__name__, fields, frozen=True, kw_only=True, namespace=said)
    if kind is datetime:
        return _TIME
    inner = get_args(kind)
    if not inner:
        return kind
    if get_origin(kind) is Annotated:
        return Annotated[full(inner[0]), *inner[1:]]
    parts = tuple(part if part is Ellipsis else full(part) for part in inner)
    if get_origin(kind) in (Union, UnionType):
        return reduce(or_, parts)
    return get_origin(kind)[parts]


def shown_as(kind: Any, value: Any) -> Any:
    """``value`` as ``full(kind)``."""
    return convert(value, full(kind), from_attributes=True)
