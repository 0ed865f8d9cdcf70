"""What may be asked of a run from outside."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from tenure.wire.bounds import Sentence


class Cancellation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Sentence | None = None


class ApproveRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    note: Sentence | None = None


class AnnotateRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    data: dict[str, Any]


class ReconcileRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Sentence = "its owner is gone"


class Reconciled(Struct, frozen=True, kw_only=True):
    """``interrupted``: runs whose owner is gone; ``canceled``: such as were asked to stop before;
    ``expired``: not approved in time."""

    interrupted: tuple[str, ...]
    expired: tuple[str, ...]
    canceled: tuple[str, ...] = ()
