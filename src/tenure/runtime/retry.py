"""Retries: a new run, linked to an old one, that does what the old one left; and what a retry
cannot do because secrets are not stored. Waits between attempts are in ``model.retry``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from shlex import quote

from msgspec import Struct
from msgspec.structs import replace

from tenure.model.errors import InvalidWorkflow, Mistake, NotRunnable
from tenure.ports.callbacks import RunStateNotifier
from tenure.ports.store import RunStateStore
from tenure.runtime.recipe import Definition
from tenure.runtime.retry_history import (
    NO_PAST,
    Continuation,
    followers,
    forgotten,
    is_empty,
    past_of,
)
from tenure.runtime.run import StoredRun
from tenure.workflow.plan import Plan, PlannedStep, make_plan
from tenure.workflow.spec import Workflow
from tenure.workflow.wording import instead_of, listed


def what_is_missing(plan: Plan, by: Continuation) -> str | None:
    """Why the retry is impossible without an export that held a secret, and what to do; ``None`` if
    it is possible.

    Such exports are not stored. Every later step may use them on any host, and only the host that
    made one can make it again. The retry does not run that step again by itself: whether work may
    be repeated is for the operator to decide.
    """
    said = [said for step in plan.steps if (said := _missing_of(step, plan, by))]
    return "; ".join(said) or None


def _missing_of(step: PlannedStep, plan: Plan, by: Continuation) -> str | None:
    withheld, again = by.past.get(step.index, NO_PAST).withheld, by.left(step)
    gone = {host: names for host, names in withheld.items() if host not in again}
    if not _goes_on_after(step, plan, by):
        handled = {host for owed in by.owed(step.index).values() for host in owed}
        gone = {host: names for host, names in gone.items() if host in handled}
    if not gone:
        return None
    names = listed(sorted({name for names in gone.values() for name in names}), 5)
    message = f"step {step.step.name!r} exported {names} with a secret in it on {listed(gone, 5)}"
    return (
        f"{message}: that is kept nowhere, and what is left may need it; {_advice(step, gone, by)}"
    )


def _advice(step: PlannedStep, gone: Iterable[str], by: Continuation) -> str:
    name = quote(step.step.name)
    untouched = [host for host in gone if by.hosts is not None and host not in by.hosts]
    touch = ""
    if untouched:
        touch = f", and let the retry touch {listed(untouched, 5)} too: its limits leave that out"
    return (
        f"run that step again with --again {name} (again=[…] in Python), or it and all that waits "
        f"for it with --from-step {name}{touch}"
    )


def _goes_on_after(step: PlannedStep, plan: Plan, by: Continuation) -> bool:
    """Whether the retry runs any step that may see the exports of ``step``: any other that it does
    not itself wait for. (Its handlers see only the exports of their own host.)"""
    before = _waited_for(step, plan)
    return any(
        by.left(other) or by.owed(other.index)
        for other in plan.steps
        if other.index != step.index and other.index not in before
    )


def _waited_for(step: PlannedStep, plan: Plan) -> set[int]:
    """Steps that have ended when ``step`` begins."""
    found: set[int] = set()
    asked = list(step.needs)
    while asked:
        index = asked.pop()
        if index not in found:
            found.add(index)
            asked += plan.steps[index].needs
    return found


class RetryOptions(Struct, frozen=True, kw_only=True):
    """The options of a retry; the rest is taken from the old run."""

    run_id: str | None = None
    only_failed: bool = False
    """Only hosts on which a task failed, in this run or one that it retries, and has not succeeded
    since; not hosts that no step has reached."""
    from_step: str | None = None
    """This step (name or index) and all that wait for it run again, also where they succeeded; no
    other does."""
    again: Sequence[str] = ()
    """These steps run again too, also where they succeeded, for example for their exports."""
    limit: Sequence[str] = ()
    """Only these hosts and groups."""
    secrets: Mapping[str, str] = {}
    """Secrets are not stored and must be given again."""
    approved_by: str | None = None
    requested_by: str | None = None
    """The requester, for the journal."""
    store: RunStateStore | None = None
    notifier: RunStateNotifier | None = None


def definition_of_retry(
    stored: StoredRun, workflow: Workflow, options: RetryOptions = RetryOptions()
) -> Definition:
    """``NotRunnable`` if the old run has not ended, leaves nothing to do, or needs an export that
    was not stored; ``InvalidWorkflow`` for an unknown step or host."""
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
        troubled = {host for each in past.values() for host in each.troubled}
        hosts = troubled if hosts is None else hosts & troubled
    again = [_index_of(word, "again", plan) for word in options.again]
    steps = None
    if options.from_step is not None:
        first = _index_of(options.from_step, "from_step", plan)
        again += followers(plan, first)
        steps = tuple(sorted({*again}))
    past = forgotten(past, again, hosts)
    chosen = None if hosts is None else tuple(sorted(hosts))
    continues = Continuation(past=past, hosts=chosen, steps=steps)
    if is_empty(plan, continues):
        raise NotRunnable(run.run_id, _nothing_left(plan, continues))
    missing = what_is_missing(plan, continues)
    if missing is not None:
        raise NotRunnable(run.run_id, f"cannot be retried so: {missing}")
    return replace(definition, continues=continues)


def work_left(definition: Definition, workflow: Workflow) -> int:
    """The number of tasks of the retry: hosts of its steps, and handlers owed to them."""
    plan = make_plan(workflow, limit=definition.limit, local=definition.local)
    by = definition.continues or Continuation()
    owed = (hosts for step in plan.steps for hosts in by.owed(step.index).values())
    return sum(len(by.left(step)) for step in plan.steps) + sum(map(len, owed))


def _index_of(word: str, option: str, plan: Plan) -> int:
    """The step of that name, or else index."""
    steps = {str(step.index): step.index for step in plan.steps}
    steps |= {step.step.name: step.index for step in plan.steps}
    if word not in steps:
        names = [step.step.name for step in plan.steps]
        message, hint = f"no step named {word[:60]!r}", instead_of(word, names)
        raise InvalidWorkflow([Mistake(source="retry", path=option, message=message, hint=hint)])
    return steps[word]


def _nothing_left(plan: Plan, continues: Continuation) -> str:
    chosen = continues.hosts or ()
    if chosen and plan.hosts.keys().isdisjoint(chosen):
        limits = f"it was limited to {listed(plan.hosts, 5)}"
        return f"had no part for {listed(chosen, 5)}: {limits}; start a new run for the others"
    if is_empty(plan, Continuation(past=continues.past)):
        return "leaves nothing to retry: every host came through every step"
    return "leaves nothing to retry on the hosts and steps asked for; others are left"
