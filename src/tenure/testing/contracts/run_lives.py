"""Lives of runs that, together, put something into every field a record has.

A test of ours walks the fields and names the one that no life fills: whoever adds a field adds it
to one of these.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tenure.model.compose import callback_failed
from tenure.model.snapshot import (
    Approval,
    CallbackTarget,
    ErrorInfo,
    HostState,
    RunSnapshot,
    StepState,
)
from tenure.model.status import HostStatus, Recovery, RunStatus, StepKind, StepStatus
from tenure.model.update import (
    CallbackFailure,
    Changes,
    HostChange,
    ItemChange,
    RunChange,
    StepChange,
    Update,
)
from tenure.testing.contracts.followed import FollowedRun
from tenure.testing.factories import (
    annotate,
    approve,
    cancel,
    embedded_run,
    finish_host,
    new_run,
    operator_status,
    owner_update,
    planned_steps,
    start_step,
    unique,
)

Life = Callable[[FollowedRun], Awaitable[None]]

AT_BIRTH: dict[str, Any] = {
    "workflow_name": "backup",
    "workflow_version": "v1",
    "workflow_digest": "sha256:abc",
    "message": "made by hand",
    "recovery": Recovery.RESUME,
    "queue": "gpu",
    "priority": 7,
    "run_after": datetime(2001, 1, 1, 12, 30, 15, 123456, tzinfo=UTC),
    "timeout": 12.5,
    "labels": {"team": "web"},
    "vars": {"release": "1.4"},
    "callbacks": (
        CallbackTarget(
            name="hook",
            url="https://hooks.example/run",
            events=("run", "host"),
            secret_env="HOOK_SECRET",  # noqa: S106  (the variable's name)
            headers={"X-Team": "web"},
        ),
    ),
    "retry_of": "run-before-this",
}
"""All that whoever makes a run can say of it, but for approval, which only a waiting one asks."""

ASKS = Approval(required=True, expires_at=datetime(2040, 1, 1, tzinfo=UTC))

WHY = ErrorInfo(
    kind="exit",
    message="disk full",
    step="step 0",
    host="web1",
    exit_code=28,
    stderr_tail="no space left",
    failed_hosts=("web1",),
    failed_count=1,
)

RESULT: dict[str, Any] = {
    "message": "not enough room",
    "kind": "exit",
    "exit_code": 28,
    "attempts": 2,
    "changed": True,
    "stdout": "copying\n",
    "stderr": "no space left\n",
    "truncated": True,
    "vars": {"free": "0"},
    "withheld": ("TOKEN",),
}


async def refused_while_it_waited(life: FollowedRun) -> None:
    run = await life.begin(new_run(approval=ASKS, **AT_BIRTH))
    run = await life.write(approve(run, by="alice", note="as agreed"))
    run = await life.write(annotate(run, ticket=4711))
    await life.write(cancel(run, reason="not tonight"))


async def full_of_incidents(life: FollowedRun, end: RunStatus) -> None:
    """Whatever can befall a run that its owner drives to ``end``."""
    run = await life.begin(embedded_run(steps=planned_steps(1), **AT_BIRTH))
    run = await life.write(start_step(run))
    run = await life.write(annotate(run, ticket=4711))
    run = await life.write(cancel(run, reason="wrong release"))
    failure = CallbackFailure(target="hook", event="run.running", error="503", attempts=8)
    run = await life.write(callback_failed(run.run_id, run.version, unique("dead"), failure))
    looping = HostChange(items={0: ItemChange(status=HostStatus.RUNNING)})
    run = await life.write(_on_step(run, hosts={"web1": looping}, message="the first of many"))
    item = ItemChange(status=HostStatus.FAILED, **RESULT)
    failed = HostChange(status=HostStatus.FAILED, items={0: item}, **RESULT)
    run = await life.write(_on_step(run, hosts={"web1": failed}))
    run = await life.write(finish_host(run, 0, "web2"))
    tolerated = Changes(
        run=RunChange(message="goes on", last_error=WHY, unconfirmed_hosts=("web9",)),
        steps={0: StepChange(status=StepStatus.FAILED)},
    )
    run = await life.write(owner_update(run, tolerated))
    run = await life.write(owner_update(run, Changes(steps={1: _HANDLER})))
    run = await life.write(finish_host(run, 1, "web1"))
    run = await life.write(_on_step(run, 1, status=StepStatus.SUCCESS))
    run = await life.write(owner_update(run, Changes(run=_ENDS[end]), release=True))
    await life.write(annotate(run, found="later"))


async def cut_short_by_its_owner(life: FollowedRun, end: RunStatus) -> None:
    """With one step under way and another that was not reached."""
    run = await life.begin(embedded_run(**AT_BIRTH))
    run = await life.write(start_step(run, 0, ("web1",)))
    await life.write(owner_update(run, Changes(run=_ENDS[end]), release=True))


async def given_back(life: FollowedRun) -> None:
    """Its owner leaves it unfinished, and somebody ends it."""
    run = await life.begin(embedded_run(**AT_BIRTH))
    run = await life.write(start_step(run))
    run = await life.write(owner_update(run, Changes(), release=True))
    await life.write(operator_status(run, RunStatus.INTERRUPTED))


def _on_step(run: RunSnapshot, index: int = 0, **fields: Any) -> Update:
    """``fields`` of ``StepChange``."""
    return owner_update(run, Changes(steps={index: StepChange(**fields)}))


_HANDLER = StepChange(
    plan=StepState(
        index=1,
        name="reload",
        kind=StepKind.HANDLER,
        action="cmd.run",
        notified_by=0,
        hosts={"web1": HostState()},
    ),
    status=StepStatus.RUNNING,
    hosts={"web1": HostChange(status=HostStatus.RUNNING, attempts=1)},
)

_ENDS = {
    RunStatus.SUCCESS: RunChange(status=RunStatus.SUCCESS, message="done after all"),
    RunStatus.FAILED: RunChange(status=RunStatus.FAILED, error=WHY),
    RunStatus.CANCELED: RunChange(status=RunStatus.CANCELED, message="stopped"),
    RunStatus.INTERRUPTED: RunChange(
        status=RunStatus.INTERRUPTED, error=WHY, interrupted_reason="the machine went down"
    ),
}

LIVES: dict[str, Life] = {
    "refused while it waited": refused_while_it_waited,
    "given back": given_back,
    **{f"incidents, then {end}": partial(full_of_incidents, end=end) for end in _ENDS},
    **{
        f"cut short: {end}": partial(cut_short_by_its_owner, end=end)
        for end in _ENDS
        if end is not RunStatus.SUCCESS
    },
}
