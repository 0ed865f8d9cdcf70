"""What streams say besides the events and the output they carry. Each is the data of a server-sent
event of that name."""

from __future__ import annotations

from msgspec import Struct


class RunEnded(Struct, frozen=True, kw_only=True):
    """``end``: the run has, and all its events were told. Do not come back."""

    run_id: str
    status: str


class OutputEnded(Struct, frozen=True, kw_only=True):
    """``end``: the attempt prints nothing more, and all it printed was told. Do not come back."""

    run_id: str
    attempt: int
    size: int


class Interrupted(Struct, frozen=True, kw_only=True):
    """``closing``: this gateway stops. ``dropped``: the reader took nothing for too long. Come
    back, here or elsewhere, with ``after`` as ``Last-Event-ID``."""

    after: str | None
