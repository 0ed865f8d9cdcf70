"""What people and programs may ask of runs from outside. The journal says by whom."""

from __future__ import annotations

from typing import Any

from tenure.gateway.calls import Answer, Call
from tenure.gateway.reaching import check_reaches, check_unlimited
from tenure.gateway.runs import shown
from tenure.wire.listings import NoQuery
from tenure.wire.verbs import (
    AnnotateRequest,
    ApproveRequest,
    Cancellation,
    Reconciled,
    ReconcileRequest,
)


async def cancel(call: Call[NoQuery, Cancellation]) -> Answer:
    run_id, by = await check_reaches(call), call.caller.name
    run = await call.parts.desk.cancel(run_id, reason=call.body.reason, by=by)
    return Answer(value=shown(run))


async def approve(call: Call[NoQuery, ApproveRequest]) -> Answer:
    run_id, by = await check_reaches(call), call.caller.name
    run = await call.parts.desk.approve(run_id, by=by, note=call.body.note)
    return Answer(value=shown(run))


async def annotate(call: Call[NoQuery, AnnotateRequest]) -> Answer:
    run_id, by = await check_reaches(call), call.caller.name
    run = await call.parts.desk.annotate(run_id, call.body.data, by=by)
    return Answer(value=shown(run))


async def reconcile(call: Call[NoQuery, ReconcileRequest]) -> Answer:
    check_unlimited(call.caller, "reconciling looks at all runs")
    reason = f"{call.body.reason} ({_asked_by(call)})"
    ended = await call.parts.desk.end_abandoned(reason=reason)
    return Answer(value=Reconciled(**ended._asdict()))


def _asked_by(call: Call[Any, Any]) -> str:
    return f"reconciled by {call.caller.name}"
