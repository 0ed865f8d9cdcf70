"""A new run's record, before anything of it has happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenure.model.errors import InvalidWorkflow
from tenure.model.ids import check_run_id
from tenure.model.snapshot import Approval, CallbackTarget, RunSnapshot
from tenure.model.status import Recovery, RunStatus
from tenure.runtime.options import RunOptions
from tenure.runtime.ready import Ready, Source
from tenure.workflow.nodes import Path
from tenure.workflow.parse import placed
from tenure.workflow.spec import CallbackSpec, PlanMode, Workflow


def planned_run(
    run_id: str,
    ready: Ready,
    options: RunOptions,
    status: RunStatus,
    targets: Sequence[CallbackSpec | CallbackTarget] = (),
) -> RunSnapshot:
    """``running`` is to be executed here and now, ``queued`` by whoever claims it.

    ``targets`` are told of every run. ``InvalidRunId``; ``InvalidWorkflow`` for one to be executed
    here that nobody has approved, or that lacks a secret.
    """
    workflow = ready.prepared.plan.workflow
    approval = Approval()
    if workflow.plan.mode is PlanMode.MANUAL_APPROVE:
        approval = Approval(required=True, by=options.approved_by)
    embedded = status is RunStatus.RUNNING
    if embedded:
        _check_complete(ready.source, approval, options)
    return RunSnapshot(
        run_id=check_run_id(run_id),
        workflow_name=workflow.name,
        workflow_version=workflow.version,
        workflow_digest=ready.source.digest,
        status=status,
        recovery=_recovery(options, workflow, embedded=embedded),
        approval=approval,
        queue=options.queue or workflow.queue,
        priority=workflow.priority if options.priority is None else options.priority,
        run_after=options.run_after,
        timeout=workflow.timeout if options.timeout is None else options.timeout,
        labels={**workflow.labels, **options.labels},
        retry_of=options.retry_of,
        vars=_shown({**workflow.vars, **options.vars}, workflow.secrets),
        callbacks=_targets((*targets, *workflow.callbacks, *options.callbacks)),
        steps=ready.prepared.planned_steps,
    )


def _check_complete(file: Source, approval: Approval, options: RunOptions) -> None:
    """What somebody must have given before anything is executed."""
    found: list[tuple[Path, str, str]] = []
    if approval.required and approval.by is None:
        message = "manual-approve: this workflow wants somebody's approval"
        hint = "approve it with --approve (approved_by=… in Python)"
        found.append((("plan", "mode"), message, hint))
    for place, name in enumerate(file.workflow.secrets):
        if name not in options.secrets and name not in options.vars:
            message = f"the secret {name!r} is not given"
            hint = f"give it with --secret {name} (secrets=… in Python)"
            found.append((("secrets", place), message, hint))
    if found:
        raise InvalidWorkflow(placed(found, file.source, file.text))


def _recovery(options: RunOptions, workflow: Workflow, *, embedded: bool) -> Recovery:
    """An embedded run ends with its process, whatever its file says: nobody else executes it."""
    if embedded:
        return Recovery.INTERRUPT
    return options.recovery or workflow.recovery or Recovery.RESUME


def secret_values(
    variables: Mapping[str, Any], workflow: Workflow, options: RunOptions
) -> list[Any]:
    """What must be masked: whatever was given as a secret, or under the name of one."""
    return [
        value
        for name, value in variables.items()
        if name in options.secrets or name in workflow.secrets
    ]


def _shown(variables: dict[str, Any], secrets: Sequence[str]) -> dict[str, Any]:
    """A secret stays out of the record, whichever way it was given."""
    if not secrets:
        return variables
    return {name: value for name, value in variables.items() if name not in secrets}


def _targets(given: Sequence[CallbackSpec | CallbackTarget]) -> tuple[CallbackTarget, ...]:
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
