"""Creations and updates of runs, as the store takes them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from tenure.model.update import NewRun, Receipt, Update
from tenure.wire.problem import Problem

MOST_WRITES = 1000
MOST_BYTES = 64 << 20
"""Of a request: a run with all files it may have, or what its owner has to say of many hosts."""


class Writes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most one for each run."""

    writes: Annotated[tuple[NewRun | Update, ...], Meta(max_length=MOST_WRITES)]


class WriteOutcome(Struct, frozen=True, kw_only=True):
    """One of the two."""

    receipt: Receipt | None = None
    problem: Problem | None = None


class WriteOutcomes(Struct, frozen=True, kw_only=True):
    """One for each write, in order; one that was refused harmed no other."""

    outcomes: tuple[WriteOutcome, ...]
