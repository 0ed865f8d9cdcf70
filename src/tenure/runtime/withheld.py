"""What a retry would miss: exports that held a secret, and so were kept nowhere.

Every variable reaches every process of a later step, and what its script does with it nobody can
see from here. So whatever comes after such an export may need it, on any host, and nobody but the
very host that exported it is known to export it again: a retry that would go on without is refused,
and says which step to run again, and where. It does not run that step by itself: to do again what
was done is for somebody to decide who knows what it does.
"""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote

from tenure.runtime.lineage import NO_PAST, Continuation
from tenure.workflow.plan import Plan, PlannedStep
from tenure.workflow.wording import listed


def what_is_missing(plan: Plan, by: Continuation) -> str | None:
    """Why the retry cannot do without what was withheld, and what to do; ``None`` if it can."""
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
    told = f"step {step.step.name!r} exported {names} with a secret in it on {listed(gone, 5)}"
    return f"{told}: that is kept nowhere, and what is left may need it; {_advice(step, gone, by)}"


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
    """Whether the retry runs anything that may see what the step exported: of every step that it
    does not wait for. (Its own handlers see what their host exported, and nothing of others.)"""
    before = _waited_for(step, plan)
    return any(
        by.left(other) or by.owed(other.index)
        for other in plan.steps
        if other.index != step.index and other.index not in before
    )


def _waited_for(step: PlannedStep, plan: Plan) -> set[int]:
    """Steps that have ended when it begins."""
    found: set[int] = set()
    asked = list(step.needs)
    while asked:
        index = asked.pop()
        if index not in found:
            found.add(index)
            asked += plan.steps[index].needs
    return found
