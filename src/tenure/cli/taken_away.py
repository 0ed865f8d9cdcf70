"""A run that was taken away from the process that executed it: what became of it.

Frozen, or cut off from the store, past its lease: a process then finds that somebody else has the
run. If that one ended it, as interrupted or canceled, the record says how, and the record is right.
"""

from __future__ import annotations

import asyncio

from tenure.model.errors import LeaseLost
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import Recovery
from tenure.runner import Runner
from tenure.runtime.waiting import pause

_AGAIN = 0.1
_PATIENCE = 5.0
"""Seconds: who ends a run claims it first, and writes the end a moment later."""


async def end_of_lost_run(runner: Runner, lost: LeaseLost) -> RunSnapshot:
    """The run with the end somebody else gave it; ``lost`` again if that one goes on with it."""
    time = asyncio.get_running_loop().time
    end_by = time() + _PATIENCE
    while True:
        run = await runner.get_run(lost.run_id)
        if run.ended:
            return run
        if run.recovery is Recovery.RESUME or time() >= end_by:
            raise lost
        await pause(_AGAIN)
