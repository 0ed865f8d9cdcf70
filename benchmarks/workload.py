"""The run everybody measures: three steps on five hosts, an update for each moment."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from tenure.model.compose import effect_of, new_run
from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import HostStatus, RunStatus, StepStatus
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

HOSTS = ("web1", "web2", "web3", "web4", "web5")
OWNER = "bench-owner"
_ids = (f"id-{number:x}" for number in count())


def started(hosts: tuple[str, ...]) -> StepChange:
    running = HostChange(status=HostStatus.RUNNING, attempts=1)
    return StepChange(status=StepStatus.RUNNING, hosts=dict.fromkeys(hosts, running))


def finished(hosts: tuple[str, ...]) -> StepChange:
    done = HostChange(
        status=HostStatus.SUCCESS,
        exit_code=0,
        changed=True,
        stdout="restarted the service and waited for it\n",
    )
    return StepChange(status=StepStatus.SUCCESS, hosts=dict.fromkeys(hosts, done))


def three_steps(run_id: str, hosts: tuple[str, ...] = HOSTS) -> RunSnapshot:
    return RunSnapshot(
        run_id=run_id,
        workflow_name="rolling-deploy",
        labels={"team": "web"},
        vars={"release": "1.4"},
        steps=tuple(
            StepState(index=i, name=name, action="cmd.run", hosts={h: HostState() for h in hosts})
            for i, name in enumerate(("drain", "restart", "restore"))
        ),
    )


def created(run: RunSnapshot) -> NewRun:
    """Held by its owner from the first commit, as an embedded run is."""
    return new_run(
        run,
        next(_ids),
        _ids,
        lease=LeaseRequest(owner_id=OWNER, seconds=3600, claim_id=next(_ids)),
    )


def updates_of(run: RunSnapshot, end: RunStatus = RunStatus.SUCCESS) -> Iterator[Update]:
    """Start, two in the middle, end: what the run's owner writes after creating it."""
    hosts = tuple(run.steps[0].hosts)
    start, stop = started(hosts), finished(hosts)
    moments = (
        Changes(run=RunChange(status=RunStatus.RUNNING), steps={0: start}),
        Changes(steps={0: stop, 1: start}),
        Changes(steps={1: stop, 2: start}),
        Changes(run=RunChange(status=end), steps={2: stop}),
    )
    for version, changes in enumerate(moments, start=1):
        yield Update(
            run_id=run.run_id,
            update_id=next(_ids),
            base_version=version,
            lease=Fencing(OWNER, 1),
            effect=effect_of(run, changes, _ids),
            release=version == len(moments),
        )
