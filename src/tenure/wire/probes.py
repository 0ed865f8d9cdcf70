"""Whether somebody is there."""

from __future__ import annotations

from msgspec import Struct


class Health(Struct, frozen=True, kw_only=True):
    """The process answers."""

    status: str = "ok"


class Readiness(Struct, frozen=True, kw_only=True):
    """``store``: it answers and its schema is this version's; else why not, in a word."""

    ready: bool
    store: str
