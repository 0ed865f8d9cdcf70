"""Builders of complete, valid values.

An owner's update is built from the owner's snapshot: based on its version, with its owner and
fence.

    run = (await store.claim_run(run_id, lease_request("worker-1"))).snapshot
    await store.update_run(start_step(run, 0))
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from msgspec.structs import replace

from tenure.model import compose
from tenure.model.leases import Beginning, ClaimRequest, beginning_of
from tenure.model.snapshot import (
    Annotation,
    CallbackTarget,
    ErrorInfo,
    HostState,
    RunSnapshot,
    StepState,
)
from tenure.model.status import HostStatus, Recovery, RunStatus, StepStatus
from tenure.model.update import (
    Changes,
    Fencing,
    HostChange,
    LeaseRequest,
    NewRun,
    RunChange,
    StepChange,
    Update,
)

HOSTS = ("web1", "web2")
LONG = 3600.0
"""A lease that outlives every test."""

HOOK = CallbackTarget(name="hook", url="https://hooks.example/run", events=("run",))
CHATTY = CallbackTarget(
    name="chatty", url="https://hooks.example/all", events=("run", "step", "host")
)

_numbers = count(1)


def unique(prefix: str) -> str:
    """Unique in the process; a valid run id."""
    return f"{prefix}-{next(_numbers):06}"


def delivery_ids() -> Iterator[str]:
    while True:
        yield unique("delivery")


# Runs.


def planned_steps(number: int = 2, hosts: tuple[str, ...] = HOSTS) -> tuple[StepState, ...]:
    return tuple(
        StepState(
            index=index,
            name=f"step {index}",
            action="cmd.run",
            hosts={host: HostState() for host in hosts},
        )
        for index in range(number)
    )


def new_run(
    *,
    update_id: str | None = None,
    definition: str | None = None,
    lease: LeaseRequest | None = None,
    **fields: Any,
) -> NewRun:
    """A queued, resumable run with two steps on two hosts. ``fields`` of the snapshot."""
    given = {"workflow_name": "deploy", "recovery": Recovery.RESUME, "steps": planned_steps()}
    run_id = fields.pop("run_id", None) or unique("run")
    return compose.new_run(
        RunSnapshot(run_id=run_id, **(given | fields)),
        update_id or unique("create"),
        delivery_ids(),
        definition=definition,
        lease=lease,
    )


def embedded_run(owner_id: str = "owner-a", *, seconds: float = LONG, **fields: Any) -> NewRun:
    """A run created running under its first lease, as by ``Runner.run``, but without its event
    ``run.queued``: clauses count events and callbacks, and one of each is easier to follow."""
    given = {"status": RunStatus.RUNNING, "recovery": Recovery.INTERRUPT}
    new = new_run(lease=lease_request(owner_id, seconds=seconds), **(given | fields))
    owed = (replace(each, seq=each.seq - 1) for each in new.deliveries if each.seq)
    return replace(new, events=new.events[1:], deliveries=tuple(owed))


# Leases.


def lease_request(
    owner_id: str = "owner-a",
    *,
    seconds: float = LONG,
    claim_id: str | None = None,
    expired: bool = True,
) -> LeaseRequest:
    return LeaseRequest(
        owner_id=owner_id, seconds=seconds, claim_id=claim_id or unique("claim"), expired=expired
    )


def claim_request(
    owner_id: str = "owner-a", *, seconds: float = LONG, claim_id: str | None = None, **rest: Any
) -> ClaimRequest:
    """``rest``: ``limit``, ``queues``, ``purpose``, ``expired``, ``dead_owners``."""
    return ClaimRequest(
        owner_id=owner_id, seconds=seconds, claim_id=claim_id or unique("claim"), **rest
    )


def begin_run(
    run: RunSnapshot, owner_id: str = "owner-a", *, seconds: float = LONG, **fields: Any
) -> Beginning:
    """Claim ``run`` and start its first step. ``fields`` of ``RunChange``."""
    starting = start_step(run).effect.changes.steps
    changes = Changes(run=RunChange(status=RunStatus.RUNNING, **fields), steps=starting)
    lease = lease_request(owner_id, seconds=seconds)
    return beginning_of(run, changes, lease, unique("update"), delivery_ids())


def fencing_of(run: RunSnapshot) -> Fencing:
    """Of the snapshot's owner."""
    return Fencing(run.owner_id or "nobody", run.fence)


# Updates of owners.


def owner_update(
    run: RunSnapshot,
    changes: Changes,
    *,
    update_id: str | None = None,
    base_version: int | None = None,
    release: bool = False,
) -> Update:
    return Update(
        run_id=run.run_id,
        update_id=update_id or unique("update"),
        base_version=run.version if base_version is None else base_version,
        lease=fencing_of(run),
        effect=compose.effect_of(run, changes, delivery_ids()),
        release=release,
    )


def change_run(run: RunSnapshot, **fields: Any) -> Update:
    """``fields`` of ``RunChange``."""
    return owner_update(run, Changes(run=RunChange(**fields)))


def start_run(run: RunSnapshot) -> Update:
    return change_run(run, status=RunStatus.RUNNING)


def start_step(run: RunSnapshot, index: int = 0, hosts: tuple[str, ...] = HOSTS) -> Update:
    """Start the step on these hosts, and the run if it is queued."""
    starting = RunChange(status=RunStatus.RUNNING) if run.status == RunStatus.QUEUED else None
    step = StepChange(
        status=StepStatus.RUNNING,
        hosts={host: HostChange(status=HostStatus.RUNNING, attempts=1) for host in hosts},
    )
    return owner_update(run, Changes(run=starting or RunChange(), steps={index: step}))


def finish_host(
    run: RunSnapshot,
    index: int = 0,
    host: str = HOSTS[0],
    status: HostStatus = HostStatus.SUCCESS,
    **fields: Any,
) -> Update:
    """``fields`` of ``HostChange``: exit code, output, exported variables."""
    change = HostChange(status=status, **fields)
    return owner_update(run, Changes(steps={index: StepChange(hosts={host: change})}))


def finish_step(
    run: RunSnapshot, index: int = 0, status: StepStatus = StepStatus.SUCCESS
) -> Update:
    """End the step, and its running hosts with success."""
    running = {
        name: HostChange(status=HostStatus.SUCCESS, exit_code=0)
        for name, host in run.steps[index].hosts.items()
        if host.status == HostStatus.RUNNING
    }
    return owner_update(run, Changes(steps={index: StepChange(status=status, hosts=running)}))


def end_run(run: RunSnapshot, status: RunStatus = RunStatus.SUCCESS) -> Update:
    """The last update; releases the lease."""
    return owner_update(run, Changes(run=ending(status)), release=True)


def ending(status: RunStatus) -> RunChange:
    """With the error or reason that ``status`` needs."""
    error = ErrorInfo(kind="test", message=f"ended as {status}")
    match status:
        case RunStatus.FAILED:
            return RunChange(status=status, error=error)
        case RunStatus.INTERRUPTED:
            return RunChange(status=status, error=error, interrupted_reason="owner gone")
        case _:
            return RunChange(status=status)


# Updates of operators: without a lease, and of any version unless one is given.


def cancel(run: RunSnapshot, reason: str | None = "stop it", by: str | None = "ops") -> Update:
    return compose.cancel(run, unique("cancel"), delivery_ids(), reason=reason, by=by)


def approve(run: RunSnapshot, by: str = "ops", note: str | None = None) -> Update:
    return compose.approve(run.run_id, unique("approve"), by, note)


def expire(run: RunSnapshot) -> Update:
    """End a run that was not approved in time."""
    return compose.expire(run, unique("expire"), delivery_ids())


def annotate(run: RunSnapshot, *, note_id: str | None = None, **data: Any) -> Update:
    note = Annotation(id=note_id or unique("note"), data=data, by="ops")
    return compose.annotate(run.run_id, note)


def operator_status(
    run: RunSnapshot, status: RunStatus, *, base_version: int | None = None
) -> Update:
    """A bare status change without a lease."""
    effect = compose.effect_of(run, Changes(run=ending(status)), delivery_ids())
    return Update(
        run_id=run.run_id, update_id=unique("operator"), base_version=base_version, effect=effect
    )
