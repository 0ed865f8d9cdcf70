"""What may be written past the verbs, and in whose name.

*Without a lease* there are a few deeds, those of the verbs. A client sends one as the update that
it would write itself; only what it changes is taken from that, and the update is made anew. So who
did it, what the journal says of it and whom callbacks tell is never the client's choice.

*Under a lease* an owner says what an owner has to say of its run, and nothing in anybody's name.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET
from msgspec.structs import replace

from tenure.gateway.problems import FORBIDDEN, Refusal
from tenure.model import compose
from tenure.model.errors import StoreIncompatible, StoreRejected
from tenure.model.snapshot import Approval, RunSnapshot
from tenure.model.status import RunStatus
from tenure.model.update import NO_RUN_CHANGE, NewRun, RunChange, Update
from tenure.runtime.definition import decode_definition

_OF_OPERATORS = ("cancel", "approve", "annotate", "callback_failed", "if_overdue")
"""What no owner writes of its own run."""
_EXPIRY = frozenset({"status", "message", "if_overdue"})


def deed_of(given: Update, run: RunSnapshot, by: str, ids: Iterator[str]) -> Update:
    """``given``, as the verb would have written it for ``by``. ``Refusal`` if no verb would."""
    change, update_id = given.effect.changes.run, given.update_id
    said = frozenset() if given.effect.changes.steps else _said(change)
    if said == {"cancel"} and change.cancel is not UNSET:
        made = compose.cancel(run, update_id, ids, reason=change.cancel.reason, by=by)
    elif said == {"approve"} and change.approve is not UNSET:
        made = compose.approve(run.run_id, update_id, by, change.approve.note)
    elif said == {"annotate"} and len(change.annotate) == 1:
        made = compose.annotate(run.run_id, replace(change.annotate[0], by=by))
    elif said == _EXPIRY and change.status is RunStatus.CANCELED:
        made = compose.expire(run, update_id, ids)
    else:
        raise Refusal(
            FORBIDDEN,
            "without a lease a run is canceled, approved or annotated, or ended because nobody "
            "approved it in time, one of these at a time; all else is its owner's",
        )
    return replace(made, base_version=given.base_version)


def birth_of(given: NewRun, by: str, ids: Iterator[str]) -> NewRun:
    """``given``, wanted by ``by``. ``Refusal``, ``StoreRejected``."""
    planned, asked = given.snapshot, given.snapshot.approval
    if given.lease is None and planned.status is not RunStatus.QUEUED:
        raise Refusal(FORBIDDEN, "a run that nobody owns begins as queued")
    if given.definition is not None:
        try:
            decode_definition(given.definition)
        except StoreIncompatible as error:
            said = "has a definition that nobody could execute"
            raise StoreRejected(planned.run_id, said) from error
    approval = Approval(required=asked.required, by=None if asked.by is None else by)
    return compose.new_run(
        replace(planned, approval=approval),
        given.update_id,
        ids,
        by=by,
        definition=given.definition,
        lease=given.lease,
        approval_seconds=given.approval_seconds,
    )


def check_is_an_owners(given: Update) -> None:
    """``Refusal``."""
    change, effect = given.effect.changes.run, given.effect
    if given.if_unowned is not None:
        raise Refusal(FORBIDDEN, "what holds for a run that nobody owns is not an owner's to say")
    if change is not NO_RUN_CHANGE and any(_says(change, name) for name in _OF_OPERATORS):
        raise Refusal(FORBIDDEN, "an owner does not cancel, approve or annotate under its lease")
    for event in effect.events:
        if event.type in compose.DEEDS:
            raise Refusal(FORBIDDEN, f"{event.type} is not an owner's to say")


def _said(change: RunChange) -> frozenset[str]:
    return frozenset(name for name in RunChange.__struct_fields__ if _says(change, name))


def _says(change: RunChange, name: str) -> bool:
    return bool(getattr(change, name) != getattr(NO_RUN_CHANGE, name))
