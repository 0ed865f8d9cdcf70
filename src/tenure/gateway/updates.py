"""Creations and updates of runs, many in one request, with an outcome each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from tenure.gateway.auth import UNAUTHENTICATED, check_queue, reached
from tenure.gateway.calls import OPERATE, WORK, Answer, Call, Caller, GatewayState
from tenure.gateway.problems import FORBIDDEN, Refusal, problem_of
from tenure.gateway.runs import restored
from tenure.model import compose
from tenure.model.errors import (
    RunNotFound,
    StoreIncompatible,
    StoreRejected,
    StoreUnavailable,
    TenureError,
)
from tenure.model.snapshot import Approval, RunSnapshot
from tenure.model.status import RunStatus
from tenure.model.tokens import Role
from tenure.model.update import NO_RUN_CHANGE, NewRun, Receipt, RunChange, Update, Write
from tenure.ports.store import BatchUpdates, Definitions, RunStateStore
from tenure.runtime.recipe import decode_definition
from tenure.system import new_update_id
from tenure.wire.callbacks import masked_target
from tenure.wire.leases import WriteOutcome, WriteOutcomes, Writes
from tenure.wire.runs import NoQuery

# What may be written without using the verbs.
#
# *Without a lease* only the verbs' own updates are allowed. The update is built anew from what the
# client's changes, so that a client never chooses the caller's name, journal events or callbacks.
#
# *Under a lease* an owner may write what an owner writes of its run, but no operator's change.


_OPERATOR_CHANGES = ("cancel", "approve", "annotate", "callback_failed", "if_overdue")
"""Changes that are never an owner's."""
_EXPIRY = frozenset({"status", "message", "if_overdue"})


def verb_update(given: Update, run: RunSnapshot, by: str, ids: Iterator[str]) -> Update:
    """``given`` as the verb would have written it for ``by``. ``Refusal`` if no verb would."""
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
            "without a lease a run is canceled, approved or annotated, or ended because it was "
            "not approved in time, one of these at a time; only its owner writes anything else",
        )
    return replace(made, base_version=given.base_version)


def checked_creation(given: NewRun, by: str, ids: Iterator[str]) -> NewRun:
    """``given`` as submitted by ``by``. ``Refusal``, ``StoreRejected``."""
    planned, asked = given.snapshot, given.snapshot.approval
    if given.lease is None and planned.status is not RunStatus.QUEUED:
        raise Refusal(FORBIDDEN, "a run without an owner begins as queued")
    if given.definition is not None:
        try:
            decode_definition(given.definition)
        except StoreIncompatible as error:
            said = "has a definition that cannot be executed"
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
    """``Refusal`` for a change that an owner may not write."""
    change, effect = given.effect.changes.run, given.effect
    if given.if_unowned is not None:
        raise Refusal(FORBIDDEN, "if_unowned is not allowed under a lease")
    if change is not NO_RUN_CHANGE and any(_says(change, name) for name in _OPERATOR_CHANGES):
        raise Refusal(FORBIDDEN, "an owner does not cancel, approve or annotate under its lease")
    for event in effect.events:
        if event.type in compose.OPERATOR_EVENTS:
            raise Refusal(FORBIDDEN, f"an owner may not write {event.type}")


def _said(change: RunChange) -> frozenset[str]:
    return frozenset(name for name in RunChange.__struct_fields__ if _says(change, name))


def _says(change: RunChange, name: str) -> bool:
    return bool(getattr(change, name) != getattr(NO_RUN_CHANGE, name))


async def update_runs(call: Call[NoQuery, Writes]) -> Answer:
    refused: dict[int, TenureError] = {}
    allowed: list[Write] = []
    for number, write in enumerate(call.body.writes):
        try:
            allowed.append(await _allowed(call, write))
        except StoreUnavailable:
            raise
        except TenureError as error:
            refused[number] = error
    accepted = iter(await _applied(call.parts.store, allowed))
    outcomes = (
        _shown(refused[number] if number in refused else next(accepted))
        for number in range(len(call.body.writes))
    )
    return Answer(value=WriteOutcomes(outcomes=tuple(outcomes)))


async def _allowed(call: Call[NoQuery, Writes], write: Write) -> Write:
    """The write as it may be stored. Without tokens there are no names either: writes are taken
    unchanged."""
    if isinstance(write, NewRun):
        return await _creation(call, write)
    if write.lease is None:
        return await _operator_update(call, write)
    _check_role(call.caller, WORK, "write under a lease")
    if not await call.parts.queues.reaches(call.caller, write.run_id, write.lease):
        raise RunNotFound(write.run_id)
    if call.caller is not UNAUTHENTICATED:
        check_is_an_owners(write)
    return write


async def _creation(call: Call[NoQuery, Writes], new: NewRun) -> NewRun:
    _check_role(call.caller, OPERATE, "create runs")
    if new.lease is not None:
        _check_role(call.caller, WORK, "create runs of its own")
    check_queue(call.caller, new.snapshot.queue)
    new = await _with_credentials(call.parts, call.caller, new)
    return (
        new
        if call.caller is UNAUTHENTICATED
        else checked_creation(new, call.caller.name, _new_ids())
    )


async def _operator_update(call: Call[NoQuery, Writes], update: Update) -> Update:
    _check_role(call.caller, OPERATE, "write without a lease")
    if call.caller is UNAUTHENTICATED:
        return update
    run = await reached(call.parts, call.caller, update.run_id)
    return verb_update(update, run, call.caller.name, _new_ids())


def _new_ids() -> Iterator[str]:
    return iter(new_update_id, "")


def _check_role(caller: Caller, roles: frozenset[Role], what: str) -> None:
    if caller.role not in roles:
        said = f"{caller.name!r} is a {caller.role} token: it does not {what}"
        raise Refusal(FORBIDDEN, said)


async def _with_credentials(parts: GatewayState, caller: Caller, new: NewRun) -> NewRun:
    """A retried run gets the callbacks of the old one, as far as the client was shown them."""
    given, old_id = new.snapshot, new.snapshot.retry_of
    if not given.callbacks or old_id is None:
        return new
    try:
        known = (await reached(parts, caller, old_id)).callbacks
    except RunNotFound:
        return new
    if given.callbacks != tuple(map(masked_target, known)):
        return new
    definition = new.definition
    if isinstance(parts.store, Definitions):
        definition = restored(definition, await parts.store.get_definition(old_id))
    return replace(new, snapshot=replace(given, callbacks=known), definition=definition)


async def _applied(store: RunStateStore, writes: Sequence[Write]) -> list[Receipt | TenureError]:
    if isinstance(store, BatchUpdates):
        return await store.update_runs(writes)
    return [await _applied_alone(store, write) for write in writes]


async def _applied_alone(store: RunStateStore, write: Write) -> Receipt | TenureError:
    try:
        if isinstance(write, NewRun):
            return await store.create_run(write)
        return await store.update_run(write)
    except StoreUnavailable:
        raise
    except TenureError as error:
        return error


def _shown(outcome: Receipt | TenureError) -> WriteOutcome:
    if isinstance(outcome, Receipt):
        return WriteOutcome(receipt=outcome)
    return WriteOutcome(problem=problem_of(outcome))
