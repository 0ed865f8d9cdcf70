"""Runs to test with, made by the same ``create`` a store uses."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from tenure.model.decide import Applied, Circumstances, apply
from tenure.model.leases import claim, create
from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import HostStatus, RunStatus, StepStatus
from tenure.model.update import (
    Changes,
    Effect,
    Fencing,
    HostChange,
    NewRun,
    RunChange,
    StepChange,
    Update,
)

AT = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
ALICE, BOB = "machine/boot/1/100/5/aa", "machine/boot/1/200/6/bb"
LIVE = Circumstances(lease_live=True, lease_expires_at=AT + timedelta(seconds=60))


def after(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


def plan(steps: int = 2, hosts: int = 2) -> tuple[StepState, ...]:
    names = [f"web{n}" for n in range(1, hosts + 1)]
    return tuple(
        StepState(index=i, name=f"step{i}", hosts={name: HostState() for name in names})
        for i in range(steps)
    )


def queued(steps: int = 2, hosts: int = 2, **fields: Any) -> RunSnapshot:
    given = {"run_id": "run-00001", "workflow_name": "deploy", "steps": plan(steps, hosts)}
    return create(NewRun(snapshot=RunSnapshot(**given | fields), update_id="new"), AT)


def owned(steps: int = 2, hosts: int = 2, **fields: Any) -> RunSnapshot:
    """Queued and claimed by Alice: version 2, fence 1."""
    return claim(queued(steps, hosts, **fields), ALICE, at=AT, lease_live=False).snapshot


def running(steps: int = 2, hosts: int = 2, **fields: Any) -> RunSnapshot:
    """Claimed by Alice and started: version 3, fence 1."""
    return done(owned(steps, hosts, **fields), run=RunStatus.RUNNING).snapshot


def at_status(status: str, **fields: Any) -> RunSnapshot:
    """A run without steps put into ``status``; ended ones have no owner."""
    run = replace(running(steps=0), status=RunStatus(status), **fields)
    return replace(run, owner_id=None) if run.ended else run


def effect(
    *, run: RunStatus | None = None, steps: dict[int, StepChange] | None = None, **scalars: Any
) -> Effect:
    if run is not None:
        scalars["status"] = run
    return Effect(changes=Changes(run=RunChange(**scalars), steps=steps or {}))


def by_owner(snapshot: RunSnapshot, what: Effect, **fields: Any) -> Update:
    given: dict[str, Any] = {
        "run_id": snapshot.run_id,
        "update_id": f"u{snapshot.version + 1}",
        "base_version": snapshot.version,
        "lease": Fencing(snapshot.owner_id or ALICE, snapshot.fence),
        "effect": what,
    }
    return Update(**given | fields)


def by_operator(snapshot: RunSnapshot, what: Effect, **fields: Any) -> Update:
    return by_owner(snapshot, what, **{"lease": None} | fields)


def done(
    snapshot: RunSnapshot,
    *,
    run: RunStatus | None = None,
    steps: dict[int, StepChange] | None = None,
    at: datetime = AT,
    release: bool = False,
    **scalars: Any,
) -> Applied:
    """The owner's next update, applied."""
    update = by_owner(snapshot, effect(run=run, steps=steps, **scalars), release=release)
    return apply(snapshot, update, at=at, circumstances=LIVE)


def start(*hosts: str) -> StepChange:
    changes = {host: HostChange(status=HostStatus.RUNNING) for host in hosts}
    return StepChange(status=StepStatus.RUNNING, hosts=changes)


def finish(status: StepStatus | None, **hosts: HostStatus) -> StepChange:
    changes = {host: HostChange(status=end) for host, end in hosts.items()}
    if status is None:
        return StepChange(hosts=changes)
    return StepChange(status=status, hosts=changes)


def as_bytes(value: Any) -> bytes:
    """For "untouched": equal bytes, not just an object that says it is equal."""
    return msgspec.json.encode(value)


def statuses(snapshot: RunSnapshot) -> Iterable[str]:
    for step in snapshot.steps:
        yield step.status
        for host in step.hosts.values():
            yield host.status


OK, BAD = HostStatus.SUCCESS, HostStatus.FAILED


def half_done() -> RunSnapshot:
    """Step 0: web1 ended, web2 runs, web3 never started. Step 1: not reached."""
    run = done(running(hosts=3), steps={0: start("web1", "web2")}, at=after(1)).snapshot
    return done(run, steps={0: finish(None, web1=OK)}, at=after(2)).snapshot
