"""Creations and updates of runs, many in one request, with an outcome each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tenure.gateway.admission import NAMELESS
from tenure.gateway.calls import Answer, Call
from tenure.gateway.deeds import birth_of, check_is_an_owners, deed_of
from tenure.gateway.definitions import restored
from tenure.gateway.parts import Parts
from tenure.gateway.problems import FORBIDDEN, Refusal, problem_of
from tenure.gateway.reaching import check_queue, reached
from tenure.gateway.roles import OPERATE, WORK, Caller
from tenure.model.access import Role
from tenure.model.errors import RunNotFound, StoreUnavailable, TenureError
from tenure.model.update import NewRun, Receipt, Update, Write
from tenure.ports.batch import BatchUpdates
from tenure.ports.definitions import Definitions
from tenure.ports.run_store import RunStateStore
from tenure.system import new_update_id
from tenure.wire.listings import NoQuery
from tenure.wire.targets import masked
from tenure.wire.writes import WriteOutcome, WriteOutcomes, Writes


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
    """As it may be written. Who needs no token has no name either: its writes are taken as they
    are."""
    if isinstance(write, NewRun):
        return await _birth(call, write)
    if write.lease is None:
        return await _deed(call, write)
    _check_role(call.caller, WORK, "write under a lease")
    if not await call.parts.queues.reaches(call.caller, write.run_id, write.lease):
        raise RunNotFound(write.run_id)
    if call.caller is not NAMELESS:
        check_is_an_owners(write)
    return write


async def _birth(call: Call[NoQuery, Writes], new: NewRun) -> NewRun:
    _check_role(call.caller, OPERATE, "create runs")
    if new.lease is not None:
        _check_role(call.caller, WORK, "create runs of its own")
    check_queue(call.caller, new.snapshot.queue)
    new = await _with_credentials(call.parts, call.caller, new)
    return new if call.caller is NAMELESS else birth_of(new, call.caller.name, _new_ids())


async def _deed(call: Call[NoQuery, Writes], update: Update) -> Update:
    _check_role(call.caller, OPERATE, "write without a lease")
    if call.caller is NAMELESS:
        return update
    run = await reached(call.parts, call.caller, update.run_id)
    return deed_of(update, run, call.caller.name, _new_ids())


def _new_ids() -> Iterator[str]:
    return iter(new_update_id, "")


def _check_role(caller: Caller, roles: frozenset[Role], what: str) -> None:
    if caller.role not in roles:
        said = f"{caller.name!r} is a {caller.role} token: it does not {what}"
        raise Refusal(FORBIDDEN, said)


async def _with_credentials(parts: Parts, caller: Caller, new: NewRun) -> NewRun:
    """Who retries a run gives the new one the callbacks of the old, as far as it was shown them."""
    given, old_id = new.snapshot, new.snapshot.retry_of
    if not given.callbacks or old_id is None:
        return new
    try:
        known = (await reached(parts, caller, old_id)).callbacks
    except RunNotFound:
        return new
    if given.callbacks != tuple(map(masked, known)):
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
