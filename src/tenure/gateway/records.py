"""A run as the store keeps it, for programs that go on with it."""

from __future__ import annotations

from tenure.gateway.calls import Answer, Call
from tenure.gateway.reaching import run_of
from tenure.gateway.roles import WORK
from tenure.gateway.runs import shown
from tenure.wire.listings import NoQuery


async def get_record(call: Call[NoQuery, None]) -> Answer:
    """Whoever executes runs may read what they execute, and may see where their callbacks go: what
    it leaves out, a run that is started again from this record would have lost."""
    run = await run_of(call)
    return Answer(value=run if call.caller.role in WORK else shown(run))
