"""Being there, and being told that there may be something to do."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from tenure.wire.bounds import Name
from tenure.wire.leases import LONGEST_WAIT, LeaseSeconds, Wait

Count = Annotated[int, Meta(ge=0, le=1 << 31)]
Topic = Annotated[str, Meta(pattern="^(queue|owner):", max_length=600)]


class Heartbeat(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Be listed for ``seconds`` from now; for people only."""

    seconds: LeaseSeconds
    queues: Annotated[tuple[Name, ...], Meta(max_length=1000)] = ("default",)
    concurrency: Count = 0
    running: Count = 0
    draining: bool = False
    details: dict[str, Any] = {}


class WakeupRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Topics are ``queue:NAME`` for runs that can be claimed, and ``owner:ID`` for cancel requests.
    ``after`` is what the last answer said: news since then are told at once. ``wait``: seconds that
    the answer may be held back while there are none."""

    topics: Annotated[tuple[Topic, ...], Meta(min_length=1, max_length=1000)]
    after: Annotated[str, Meta(max_length=100)] | None = None
    wait: Wait = LONGEST_WAIT


class Wakeup(Struct, frozen=True, kw_only=True):
    """There may be news if ``after`` is another than was asked with. A hint: look for yourself, and
    also now and then without it."""

    after: str
