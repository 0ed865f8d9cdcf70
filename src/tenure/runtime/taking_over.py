"""What whoever claims a run decides before going on with it: may it go on at all, and how long?"""

from __future__ import annotations

from shlex import quote

from tenure.model.snapshot import RunSnapshot
from tenure.model.status import HostStatus, RunStatus
from tenure.runtime.stop import REQUESTED, Stop
from tenure.workflow.wording import listed

_LEAST = 0.001
_OPEN = (HostStatus.RUNNING, HostStatus.UNKNOWN)


def early_end(run: RunSnapshot, max_takeovers: int) -> Stop | None:
    """How it ends at once: somebody wants it canceled, it has cost one worker after another, or it
    needs what only the lost one knew."""
    if run.cancel_requested_at is not None:
        return REQUESTED
    lost = run.takeovers_without_progress
    if lost > max_takeovers:
        return cannot_go_on(
            f"its worker was lost {lost} times in a row before any host finished: it may be what "
            "ends them; look, then tenure retry"
        )
    for step in run.steps:
        withheld = sorted({name for host in step.hosts.values() for name in host.withheld})
        if withheld:
            return cannot_go_on(
                f"its worker was lost, and with it what step {step.name!r} exported as "
                f"{listed(withheld, 5)}: it held a secret, which is kept nowhere; "
                f"tenure retry {run.run_id} --again {quote(step.name)} exports it again"
            )
    return None


def cannot_go_on(why: str) -> Stop:
    return Stop(
        status=RunStatus.INTERRUPTED,
        kind="takeover",
        message=why,
        host_status=HostStatus.INTERRUPTED,
    )


def unconfirmed(run: RunSnapshot) -> set[str]:
    """Hosts with a task that nobody saw end."""
    return {name for step in run.steps for name, host in step.hosts.items() if host.status in _OPEN}


def time_left(run: RunSnapshot) -> float | None:
    """Of the run's own time-out, by the store's clock."""
    if run.timeout is None or run.started_at is None or run.updated_at is None:
        return run.timeout
    return max(run.timeout - (run.updated_at - run.started_at).total_seconds(), _LEAST)
