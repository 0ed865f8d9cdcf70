"""What went wrong, as RFC 9457 has it: for programs by ``type``, for people by ``detail``."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tenure.model.errors import Mistake
from tenure.model.status import RunStatus

MEDIA_TYPE = "application/problem+json"
PREFIX = "urn:tenure:problem:"
"""Of every ``type``; what follows is the name of the problem."""


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``detail`` says what happened and what to do next. The rest is what a program would
    otherwise have to cut out of it; what does not apply is left out."""

    type: str
    title: str
    status: int
    detail: str
    run_id: str | None = None
    delivery_id: str | None = None
    mistakes: tuple[Mistake, ...] = ()
    """All that is wrong with a workflow, each with its place."""
    problems: tuple[str, ...] = ()
    """All that is wrong with options."""
    owner_id: str | None = None
    fence: int | None = None
    expires_at: datetime | None = None
    base_version: int | None = None
    version: int | None = None
    run_status: RunStatus | None = None
    cancel_requested_at: datetime | None = None
