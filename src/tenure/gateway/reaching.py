"""The run that a request is about, if this caller may see it."""

from __future__ import annotations

from typing import Any

from tenure.gateway.calls import Call
from tenure.gateway.parts import Parts
from tenure.gateway.problems import FORBIDDEN, Refusal
from tenure.gateway.roles import Caller
from tenure.model.errors import RunNotFound
from tenure.model.ids import check_run_id
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.model.update import Fencing
from tenure.workflow.wording import listed


def run_id_of(call: Call[Any, Any]) -> str:
    """``InvalidRunId``."""
    return check_run_id(call.path["run_id"])


async def run_of(call: Call[Any, Any]) -> RunSnapshot:
    """``InvalidRunId``, ``RunNotFound``."""
    return await reached(call.parts, call.caller, run_id_of(call))


async def reached(parts: Parts, caller: Caller, run_id: str) -> RunSnapshot:
    """Of a queue that is not the caller's nobody says whether it is there."""
    run = await parts.store.get_run(run_id)
    if not caller.may_touch(run.queue):
        raise RunNotFound(run_id)
    return run


async def check_reaches(call: Call[Any, Any]) -> str:
    """The run's id, looked up only for callers that may not see all."""
    run_id = run_id_of(call)
    if call.caller.queues is not None:
        await reached(call.parts, call.caller, run_id)
    return run_id


async def check_holds(call: Call[Any, Any], fencing: Fencing) -> str:
    """The same, for who writes of a run as its owner again and again."""
    run_id = run_id_of(call)
    if not await call.parts.queues.reaches(call.caller, run_id, fencing):
        raise RunNotFound(run_id)
    return run_id


def check_queue(caller: Caller, queue: str) -> None:
    """``Refusal``."""
    if not caller.may_touch(queue):
        raise Refusal(FORBIDDEN, f"queue {queue[:60]!r} is not one of this token's")


def check_unlimited(caller: Caller, what: str) -> None:
    if caller.queues is not None:
        raise Refusal(FORBIDDEN, f"{what}; this token is limited to {_own(caller)}")


def queue_for(caller: Caller, asked: str | None) -> str | None:
    """The one queue to look at; ``None``: all of them, of which only ``own`` runs are shown."""
    if caller.queues is None:
        return asked
    if asked is None:
        return next(iter(caller.queues)) if len(caller.queues) == 1 else None
    if asked not in caller.queues:
        raise Refusal(FORBIDDEN, f"queue {asked[:60]!r}: this token is limited to {_own(caller)}")
    return asked


def own(caller: Caller, runs: tuple[RunSummary, ...]) -> tuple[RunSummary, ...]:
    """Those it may see: a page of a list may be shorter than was asked for, and have a next."""
    if caller.queues is None:
        return runs
    return tuple(run for run in runs if run.queue in caller.queues)


def _own(caller: Caller) -> str:
    return listed(sorted(caller.queues or ()), 10) or "no queue"
