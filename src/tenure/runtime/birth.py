"""A new run's record, before anything of it has happened."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from tenure.model.errors import InvalidWorkflow
from tenure.model.ids import check_run_id
from tenure.model.snapshot import Approval, CallbackTarget, RunSnapshot
from tenure.model.status import Recovery, RunStatus
from tenure.runtime.kept_out import check_secrets_kept_out
from tenure.runtime.options import RunOptions
from tenure.runtime.ready import Ready, Source, check_complete
from tenure.workflow.parse import placed
from tenure.workflow.spec import CallbackSpec, PlanMode, Workflow


def planned_run(
    run_id: str,
    ready: Ready,
    options: RunOptions,
    targets: Sequence[CallbackSpec | CallbackTarget] = (),
    *,
    embedded: bool,
    kept: bool = True,
) -> RunSnapshot:
    """``embedded`` is to be executed here and now, unless it waits for approval; the others by
    whoever claims them. ``kept``: in a store, where others read it.

    ``targets`` are told of every run. ``InvalidRunId``; ``InvalidWorkflow`` for one to be executed
    here that lacks a secret, and for any that lacks a variable; ``InvalidOptions`` if the record
    would have a secret's value in it.
    """
    workflow, usual = ready.prepared.plan.workflow, ready.usual
    approval = _approval(workflow, options.approved_by)
    begins = embedded and _may_begin(approval)
    given = {**options.vars, **options.secrets}
    check_complete(ready, given, given if begins else workflow.secrets)
    if kept:
        check_secrets_kept_out(options, workflow)
    return replace(
        usual,
        run_id=check_run_id(run_id),
        status=RunStatus.RUNNING if begins else RunStatus.QUEUED,
        recovery=_recovery(options, workflow, embedded=embedded),
        approval=approval,
        queue=options.queue or usual.queue,
        priority=usual.priority if options.priority is None else options.priority,
        run_after=options.run_after,
        timeout=usual.timeout if options.timeout is None else options.timeout,
        labels={**usual.labels, **options.labels},
        retry_of=options.retry_of,
        vars=_shown({**workflow.vars, **options.vars}, workflow.secrets),
        callbacks=_targets((*targets, *workflow.callbacks, *options.callbacks)),
    )


def planned_retry(
    old: RunSnapshot, run_id: str, ready: Ready, approved_by: str | None
) -> RunSnapshot:
    """A new run like ``old``, for what ``ready`` has left of it. It wants its own approval."""
    approval = _approval(ready.source.workflow, approved_by)
    return RunSnapshot(
        run_id=check_run_id(run_id),
        workflow_name=old.workflow_name,
        workflow_version=old.workflow_version,
        workflow_digest=old.workflow_digest,
        status=RunStatus.RUNNING if _may_begin(approval) else RunStatus.QUEUED,
        approval=approval,
        queue=old.queue,
        priority=old.priority,
        timeout=old.timeout,
        labels=old.labels,
        retry_of=old.run_id,
        vars=old.vars,
        callbacks=old.callbacks,
        steps=ready.prepared.planned_steps,
    )


def queued_retry(
    old: RunSnapshot, run_id: str, ready: Ready, approved_by: str | None
) -> RunSnapshot:
    """``planned_retry`` for workers: whoever loses it, another goes on."""
    planned = planned_retry(old, run_id, ready, approved_by)
    recovery = ready.source.workflow.recovery or Recovery.RESUME
    return replace(planned, status=RunStatus.QUEUED, recovery=recovery)


def _approval(workflow: Workflow, by: str | None) -> Approval:
    if workflow.plan.mode is PlanMode.MANUAL_APPROVE:
        return Approval(required=True, by=by)
    return Approval()


def _may_begin(approval: Approval) -> bool:
    return not approval.required or approval.by is not None


def cannot_wait(file: Source, why: str) -> InvalidWorkflow:
    """For a workflow that wants approval where nobody could go on with it later."""
    message = f"manual-approve: {why}, so a run cannot wait for somebody's approval"
    hint = "approve it with --approve (approved_by=… in Python), or use a sqlite store"
    found = [(("plan", "mode"), message, hint)]
    return InvalidWorkflow(placed(found, file.source, file.text))


def _recovery(options: RunOptions, workflow: Workflow, *, embedded: bool) -> Recovery:
    """An embedded run ends with its process, whatever its file says: nobody else executes it."""
    if embedded:
        return Recovery.INTERRUPT
    return options.recovery or workflow.recovery or Recovery.RESUME


def secret_values(
    variables: Mapping[str, Any], workflow: Workflow, secrets: Collection[str]
) -> list[Any]:
    """What must be masked: whatever was given as a secret, or under the name of one."""
    return [variables[name] for name in {*secrets, *workflow.secrets} if name in variables]


def _shown(variables: dict[str, Any], secrets: Sequence[str]) -> dict[str, Any]:
    """A secret stays out of the record, whichever way it was given."""
    if not secrets:
        return variables
    return {name: value for name, value in variables.items() if name not in secrets}


def _targets(given: Sequence[CallbackSpec | CallbackTarget]) -> tuple[CallbackTarget, ...]:
    if not given:
        return ()
    return tuple(
        each
        if isinstance(each, CallbackTarget)
        else CallbackTarget(
            name=f"callback-{number}",
            url=each.url,
            events=tuple(each.events),
            secret_env=each.secret_env,
            headers=each.headers,
        )
        for number, each in enumerate(given, 1)
    )
