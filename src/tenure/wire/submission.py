"""A workflow handed in to be run."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from tenure.model.leasing import MAX_PRIORITY, MIN_PRIORITY
from tenure.model.status import Recovery
from tenure.wire.bounds import Moment, Name, Sentence
from tenure.workflow.document import MOST_BYTES


class NewCallback(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to tell of the run; ``events`` are kinds: run, step, host."""

    url: Sentence
    events: tuple[str, ...] = ("run",)
    secret_env: Name | None = None
    headers: dict[str, str] = {}


class SubmitOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is particular to this run. What is left out, the workflow says.

    There are no secrets: a run carries none, its worker has them.
    """

    run_id: str | None = None
    vars: dict[str, Any] = {}
    labels: dict[str, str] = {}
    callbacks: tuple[NewCallback, ...] = ()
    queue: Name | None = None
    priority: Annotated[int, Meta(ge=MIN_PRIORITY, le=MAX_PRIORITY)] | None = None
    run_after: Moment | None = None
    recovery: Recovery | None = None
    timeout: Annotated[float, Meta(ge=0)] | None = None
    limit: tuple[Name, ...] = ()
    local: bool = False
    approve: bool = False


class Submission(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``workflow`` is the text of a workflow file, or the same as an object. ``files`` are those
    its actions need, by the names their arguments give them, in base64: nothing is read from the
    gateway's own disk."""

    workflow: Annotated[str, Meta(max_length=MOST_BYTES)] | dict[str, Any]
    files: dict[str, bytes] = {}
    options: SubmitOptions = SubmitOptions()


class RetryRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As ``tenure retry`` has it: a new run, linked to the old one, that does what that one left.
    Workers execute it."""

    run_id: str | None = None
    only_failed: bool = False
    from_step: Name | None = None
    again: tuple[Name, ...] = ()
    limit: tuple[Name, ...] = ()
    approve: bool = False
