"""Creations and updates of runs, many in one request, with an outcome each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenure.gateway.auth import check_queue, not_held, reached
from tenure.gateway.calls import Answer, Call
from tenure.gateway.problems import FORBIDDEN, Refusal, problem_of
from tenure.model import compose
from tenure.model.errors import StoreUnavailable, TenureError
from tenure.model.tokens import Role
from tenure.model.update import NO_RUN_CHANGE, NewRun, Receipt, Update, Write
from tenure.ports.store import BatchUpdates, RunStateStore
from tenure.wire.leases import WriteOutcome, WriteOutcomes, Writes
from tenure.wire.runs import NoQuery

# Operators change runs by the verbs only. What is left is for admins, whose writes are stored as
# sent, and for the owner of a run: under its lease it writes what an owner writes, and no
# operator's change.


_OPERATOR_CHANGES = ("cancel", "approve", "annotate", "callback_failed", "if_overdue")
"""Changes that are never an owner's."""


def check_is_an_owners(given: Update) -> None:
    """``Refusal`` for a change that an owner may not write."""
    change, effect = given.effect.changes.run, given.effect
    if given.if_unowned is not None:
        raise Refusal(FORBIDDEN, "if_unowned is not allowed under a lease")
    if any(getattr(change, name) != getattr(NO_RUN_CHANGE, name) for name in _OPERATOR_CHANGES):
        raise Refusal(FORBIDDEN, "an owner does not cancel, approve or annotate under its lease")
    for event in effect.events:
        if event.type in compose.OPERATOR_EVENTS:
            raise Refusal(FORBIDDEN, f"an owner may not write {event.type}")


async def update_runs(call: Call[NoQuery, Writes]) -> Answer:
    refused: dict[int, TenureError] = {}
    allowed: list[Write] = []
    leases = {
        write.run_id: write.lease
        for write in call.body.writes
        if isinstance(write, Update) and write.lease is not None
    }
    foreign = await not_held(call, leases)
    for number, write in enumerate(call.body.writes):
        try:
            await _check_allowed(call, write, foreign)
        except StoreUnavailable:
            raise
        except TenureError as error:
            refused[number] = error
        else:
            allowed.append(write)
    accepted = iter(await _applied(call.parts.store, allowed))
    outcomes = (
        _shown(refused[number] if number in refused else next(accepted))
        for number in range(len(call.body.writes))
    )
    return Answer(value=WriteOutcomes(outcomes=tuple(outcomes)))


async def _check_allowed(
    call: Call[NoQuery, Writes], write: Write, foreign: Mapping[str, TenureError]
) -> None:
    """``Refusal``, ``RunNotFound``, ``LeaseLost``."""
    caller = call.caller
    if isinstance(write, NewRun):
        check_queue(caller, write.snapshot.queue)
        if write.snapshot.retry_of is not None and caller.queues is not None:
            said = "retries of a token that is limited to queues are made by the verb"
            raise Refusal(FORBIDDEN, said)
    elif write.run_id in foreign and write.lease is not None:
        raise foreign[write.run_id]
    if caller.role is Role.ADMIN:
        if isinstance(write, Update) and write.lease is None and caller.queues is not None:
            await reached(call.parts, caller, write.run_id)
        return
    if isinstance(write, NewRun) or write.lease is None:
        said = "without a lease it takes an admin; runs are created and changed by the verbs"
        raise Refusal(FORBIDDEN, f"{caller.name!r} is a {caller.role} token: {said}")
    check_is_an_owners(write)


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
