"""Problem documents (RFC 9457), health, and the types shared by all shapes."""

from __future__ import annotations

from datetime import datetime
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct, convert, defstruct

from tenure.model.errors import Mistake
from tenure.model.query import MAX_PAGE
from tenure.model.status import RunStatus

PROBLEM_MEDIA_TYPE = "application/problem+json"
PREFIX = "urn:tenure:problem:"
"""Prefix of every ``type``, followed by the name of the problem."""


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``detail`` says what happened and what to do next. The other fields are for programs; those
    that do not apply are left out."""

    type: str
    title: str
    status: int
    detail: str
    run_id: str | None = None
    delivery_id: str | None = None
    mistakes: tuple[Mistake, ...] = ()
    """All mistakes of a workflow, each with its place."""
    problems: tuple[str, ...] = ()
    """All mistakes in options."""
    owner_id: str | None = None
    fence: int | None = None
    expires_at: datetime | None = None
    base_version: int | None = None
    version: int | None = None
    run_status: RunStatus | None = None
    cancel_requested_at: datetime | None = None


class Health(Struct, frozen=True, kw_only=True):
    """The process answers."""

    status: str = "ok"


class Readiness(Struct, frozen=True, kw_only=True):
    """``store``: ``ok`` if it answers and its schema is this version's; otherwise the reason, in a
    word."""

    ready: bool
    store: str


# Shapes with every field: stored records leave out defaults, readers get them all. They are derived
# from the model's types.


_TIME = Annotated[datetime, Meta(extra_json_schema={"format": "date-time"})]


@cache
def full(kind: Any) -> Any:
    """``kind`` with all structs in it written out: no field has a default, so each is in the JSON
    and required in its schema."""
    if kind is Problem:  # always leaves out what does not apply
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


PRINTABLE = r"^(?![\s\S]*[\x00-\x1f\x7f])"
"""No control characters: not every store can hold them, and they harm logs and terminals."""

Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=PRINTABLE)]
Sentence = Annotated[str, Meta(max_length=2000)]
Cursor = Annotated[str, Meta(min_length=1, max_length=500)]
PageSize = Annotated[int, Meta(ge=1, le=MAX_PAGE)]
Moment = Annotated[datetime, Meta(tz=True)]
"""With its time zone."""
