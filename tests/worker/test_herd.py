"""Hundreds of leases end in the same moment, and eight workers want them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tenure
from tenure.model.leases import ClaimRequest, Purpose
from tenure.testing.factories import new_run
from tests.runtime.puppets import Between
from tests.worker.conftest import Workers, eventually

RUNS, WORKERS, BATCH = 400, 8, 10
TIMING = tenure.Timing(lease_duration=60, renew_interval=0.5, control_interval=1)


class Asked:
    """What workers got for each of their claims, in order. What they got never begins: that is no
    part of it."""

    def __init__(self) -> None:
        self.got: list[int] = []

    def at(self, store: Any) -> Between:
        door = Between(store)
        door.rules |= {"claim_runs": self._claim, "get_definition": _never}
        return door

    async def _claim(self, real: Any, request: ClaimRequest) -> Any:
        claimed = await real(request)
        if request.purpose is Purpose.EXECUTE:
            self.got.append(len(claimed))
        return claimed

    @property
    def needed(self) -> list[int]:
        """From the first claim that got anything to the last."""
        useful = [place for place, got in enumerate(self.got) if got]
        return self.got[useful[0] : useful[-1] + 1]


async def _never(*_: Any) -> Any:
    await asyncio.Event().wait()


@pytest.mark.slow
@pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
async def test_hundreds_of_leases_that_end_at_once_cost_few_more_claims_than_needed(
    workers: Workers,
) -> None:
    queued = [new_run(definition="nobody reads it") for _ in range(RUNS)]
    await workers.store.update_runs(queued)
    gone = ClaimRequest(owner_id="gone", seconds=2, claim_id="all", limit=RUNS)
    assert len(await workers.store.claim_runs(gone)) == RUNS
    asked = Asked()
    for _ in range(WORKERS):
        workers.start(
            store=asked.at(workers.store),
            timing=TIMING,
            poll_interval=0.5,
            claim_batch=BATCH,
            concurrency=RUNS,
        )
    await eventually(lambda: sum(asked.got) >= RUNS)
    assert sum(asked.got) == RUNS
    assert len(asked.needed) <= 3 * RUNS / BATCH
