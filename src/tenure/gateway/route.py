"""One row of the table of routes: all that is known of a request before it is made."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from msgspec import Struct
from starlette.convertors import PathConvertor, register_url_convertor

from tenure.gateway.calls import Answer, Call, RawAnswer, StreamAnswer
from tenure.gateway.problems import Kind
from tenure.model.access import Role
from tenure.wire.listings import NoQuery

Q = TypeVar("Q")
B = TypeVar("B")

_PARAMETER = re.compile(r"\{(\w+)\}")
_WITH_SLASHES = re.compile(r"\{(owner_id|host)\}$")
"""What may hold slashes stands last: in a path they cannot be told from others."""


class _Rest(PathConvertor):
    regex = "(?s:.*)"


register_url_convertor("rest", _Rest())
"""All that is left of a path, line breaks too."""


class Route(Struct, Generic[Q, B], frozen=True, kw_only=True):
    """Server, role check, validation, OpenAPI document and the tests of all three read this."""

    method: str
    path: str
    summary: str
    roles: frozenset[Role] | None
    """Who may; ``None``: anybody, without a token."""
    handler: Callable[[Call[Q, B]], Awaitable[Answer | RawAnswer | StreamAnswer]]
    answers: dict[int, Any]
    """The type of the JSON for each status, or a media type."""
    streams: bool = False
    """With ``Accept: text/event-stream``: server-sent events instead."""
    query: type[Q] = NoQuery  # type: ignore[assignment]
    body: type[B] | None = None
    body_optional: bool = False
    most_bytes: int | None = None
    """If it may be larger than usual."""
    problems: tuple[Kind, ...] = ()
    """Besides those that any route may answer with."""
    request_headers: dict[str, str] = {}
    """Headers it reads, with what they are for."""

    @property
    def pattern(self) -> str:
        """As the router has it."""
        return _WITH_SLASHES.sub(r"{\1:rest}", self.path)

    @property
    def parameters(self) -> list[str]:
        return _PARAMETER.findall(self.path)
