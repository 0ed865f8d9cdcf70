"""Creations and updates of runs, many in one request, with an outcome each."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tenure.gateway.admission import NAMELESS
from tenure.gateway.calls import Answer, Call
from tenure.gateway.problems import FORBIDDEN, Refusal, problem_of
from tenure.gateway.roles import OPERATE, WORK, Caller
from tenure.model.errors import RunNotFound, StoreUnavailable, TenureError
from tenure.model.events import Event
from tenure.model.update import Effect, NewRun, Receipt, Write
from tenure.ports.batch import BatchUpdates
from tenure.ports.run_store import RunStateStore
from tenure.wire.listings import NoQuery
from tenure.wire.targets import masked
from tenure.wire.writes import WriteOutcome, WriteOutcomes, Writes


async def update_runs(call: Call[NoQuery, Writes]) -> Answer:
    refused: dict[int, TenureError] = {}
    allowed: list[Write] = []
    for number, write in enumerate(call.body.writes):
        objection = await _objection(call, write)
        if objection is None:
            allowed.append(signed(await _with_credentials(call, write), call.caller))
        else:
            refused[number] = objection
    accepted = iter(await _applied(call.parts.store, allowed))
    outcomes = (
        _shown(refused[number] if number in refused else next(accepted))
        for number in range(len(call.body.writes))
    )
    return Answer(value=WriteOutcomes(outcomes=tuple(outcomes)))


async def _objection(call: Call[NoQuery, Writes], write: Write) -> TenureError | None:
    """Who owns a run writes under its lease; what needs none is an operator's."""
    if call.caller.role not in (OPERATE if write.lease is None else WORK):
        how = "without a lease" if write.lease is None else "under a lease"
        said = f"{call.caller.name!r} is a {call.caller.role} token: it does not write {how}"
        return Refusal(FORBIDDEN, said)
    if isinstance(write, NewRun):
        queue = write.snapshot.queue
        if not call.caller.may_touch(queue):
            return Refusal(FORBIDDEN, f"queue {queue[:60]!r} is not one of this token's")
    elif not await call.parts.queues.reaches(call.caller, write.run_id):
        return RunNotFound(write.run_id)
    return None


async def _with_credentials(call: Call[NoQuery, Writes], write: Write) -> Write:
    """Who retries a run gives the new one the callbacks of the old, as far as it was shown them."""
    if not isinstance(write, NewRun) or not write.snapshot.callbacks:
        return write
    given, old_id = write.snapshot, write.snapshot.retry_of
    if old_id is None or not await call.parts.queues.reaches(call.caller, old_id):
        return write
    try:
        known = (await call.parts.store.get_run(old_id)).callbacks
    except RunNotFound:
        return write
    if given.callbacks != tuple(map(masked, known)):
        return write
    return replace(write, snapshot=replace(given, callbacks=known))


def signed(write: Write, caller: Caller) -> Write:
    """What no owner writes, somebody asked for: the journal says by whose token."""
    if write.lease is not None or caller is NAMELESS:
        return write
    if isinstance(write, NewRun):
        return replace(write, events=_signed(write.events, caller))
    ended = write.if_unowned
    return replace(
        write,
        effect=_signed_effect(write.effect, caller),
        if_unowned=None if ended is None else _signed_effect(ended, caller),
    )


def _signed_effect(effect: Effect, caller: Caller) -> Effect:
    return replace(effect, events=_signed(effect.events, caller))


def _signed(events: Sequence[Event], caller: Caller) -> tuple[Event, ...]:
    return tuple(
        replace(event, data={**(event.data or {}), "token": caller.name}) for event in events
    )


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
