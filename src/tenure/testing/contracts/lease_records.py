"""Runs that change hands are read back whole, too, and whole is what comes with a claim."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tenure.model.compose import callback_failed
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.model.update import CallbackFailure, Changes, RunChange
from tenure.testing.contracts.followed import FollowedOwnership
from tenure.testing.contracts.harness import ContractHarness, LeasingStore
from tenure.testing.contracts.run_lives import ASKS, AT_BIRTH, WHY
from tenure.testing.factories import (
    annotate,
    approve,
    cancel,
    embedded_run,
    end_run,
    finish_host,
    new_run,
    owner_update,
    start_step,
    unique,
)

OwnedLife = Callable[[FollowedOwnership], Awaitable[None]]


async def taken_over(life: FollowedOwnership) -> None:
    """And given back with all that befell it, and picked up again, and again."""
    run = await life.begin_and_lose_owner(embedded_run("owner-a", **AT_BIRTH))
    run = await life.claim("owner-b")
    run = await _leave_in_trouble(life, run)
    run = await life.claim_next("owner-c")
    run = await life.write(owner_update(run, Changes(), release=True))
    run = await life.claim("owner-d")
    run = await life.write(finish_host(run, 0, "web1"))
    await life.write(end_run(run, RunStatus.CANCELED))


async def _leave_in_trouble(life: FollowedOwnership, run: RunSnapshot) -> RunSnapshot:
    run = await life.write(start_step(run))
    run = await life.write(annotate(run, ticket=4711))
    run = await life.write(cancel(run, reason="wrong release"))
    failure = CallbackFailure(target="hook", event="run.running", error="503", attempts=8)
    run = await life.write(callback_failed(run.run_id, run.version, unique("dead"), failure))
    said = RunChange(
        error=WHY,
        last_error=WHY,
        interrupted_reason="the machine goes down",
        unconfirmed_hosts=("web9",),
    )
    return await life.write(owner_update(run, Changes(run=said), release=True))


async def forsaken(life: FollowedOwnership) -> None:
    """Its owner falls silent, comes back for a moment, and somebody cancels it."""
    run = await life.begin_and_lose_owner(embedded_run(**AT_BIRTH))
    run = await life.write(annotate(run, ticket=4711))
    run = await life.write(start_step(run))
    await life.write(cancel(run))


async def claimed_after_approval(life: FollowedOwnership) -> None:
    run = await life.begin(new_run(approval=ASKS, **AT_BIRTH))
    run = await life.write(approve(run, by="alice", note="as agreed"))
    run = await life.claim_next("owner-a")
    run = await life.write(owner_update(run, Changes(), release=True))
    run = await life.claim("owner-b")
    run = await life.write(start_step(run))
    await life.write(end_run(run, RunStatus.FAILED))


OWNED_LIVES: dict[str, OwnedLife] = {
    "taken over": taken_over,
    "forsaken": forsaken,
    "claimed after approval": claimed_after_approval,
}


class WholeClaims(ContractHarness):
    @pytest.mark.parametrize("life", OWNED_LIVES.values(), ids=OWNED_LIVES)
    async def test_record_and_summary_are_whole_whoever_has_the_run(
        self, store: LeasingStore, life: OwnedLife
    ) -> None:
        """Also in the list of runs that could be claimed."""
        await life(FollowedOwnership(store, self))
