"""A retry: a new run, linked to an old one, that does what the old one left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tenure.model.errors import InvalidWorkflow, Mistake, NotRunnable
from tenure.ports.notifier import RunStateNotifier
from tenure.ports.run_store import RunStateStore
from tenure.runtime.definition import Definition
from tenure.runtime.lineage import (
    Continuation,
    failed_hosts,
    followers,
    forgotten,
    is_empty,
    past_of,
)
from tenure.runtime.stored import StoredRun
from tenure.workflow.plan import Plan, make_plan
from tenure.workflow.spec import Workflow
from tenure.workflow.wording import did_you_mean


class RetryOptions(Struct, frozen=True, kw_only=True):
    """What is particular to one retry. All the rest is as the old run has it."""

    run_id: str | None = None
    only_failed: bool = False
    """Only hosts on which something went wrong, not those that were never reached."""
    from_step: str | None = None
    """This step and all that wait for it run again, also where they succeeded; no other does."""
    limit: Sequence[str] = ()
    """Only these hosts and groups."""
    secrets: Mapping[str, str] = {}
    """They are kept nowhere: to be given again."""
    approved_by: str | None = None
    store: RunStateStore | None = None
    notifier: RunStateNotifier | None = None


def definition_of_retry(
    stored: StoredRun, workflow: Workflow, options: RetryOptions = RetryOptions()
) -> Definition:
    """``NotRunnable`` if the old run goes on, or leaves nothing to do; ``InvalidWorkflow`` for a
    step or host that is not there."""
    run, definition = stored
    if not run.ended:
        raise NotRunnable(run.run_id, f"is {run.status}: it can be retried once it has ended")
    plan = make_plan(workflow, limit=definition.limit, local=definition.local)
    before = definition.continues or Continuation()
    past = past_of(plan, run, before.past)
    hosts = None
    if options.limit:
        hosts = set(make_plan(workflow, limit=options.limit).hosts)
    if options.only_failed:
        failed = failed_hosts(run)
        hosts = failed if hosts is None else hosts & failed
    steps = None
    if options.from_step is not None:
        steps = followers(plan, _index_of(options.from_step, plan))
        past = forgotten(past, steps, hosts)
    chosen = None if hosts is None else tuple(sorted(hosts))
    continues = Continuation(past=past, hosts=chosen, steps=steps)
    if is_empty(plan, continues):
        raise NotRunnable(run.run_id, _nothing_left(plan, continues))
    return replace(definition, continues=continues)


def work_left(definition: Definition, workflow: Workflow) -> int:
    """Hosts of steps that the retry will run, and handlers it owes them."""
    plan = make_plan(workflow, limit=definition.limit, local=definition.local)
    by = definition.continues or Continuation()
    owed = (hosts for step in plan.steps for hosts in by.owed(step.index).values())
    return sum(len(by.left(step)) for step in plan.steps) + sum(map(len, owed))


def _index_of(name: str, plan: Plan) -> int:
    names = {step.step.name: step.index for step in plan.steps}
    if name not in names:
        mistake = Mistake(
            path="from_step", message=f"no step named {name!r}", hint=did_you_mean(name, names)
        )
        raise InvalidWorkflow([mistake])
    return names[name]


def _nothing_left(plan: Plan, continues: Continuation) -> str:
    if is_empty(plan, Continuation(past=continues.past)):
        return "leaves nothing to retry: every host came through every step"
    return "leaves nothing to retry on the hosts and steps asked for; others are left"
