"""What must never happen. Each check looks at one step; the ghosts remember what it needs.

    I2  one end: an ended record never changes
    I3  no re-run: once a task's result is committed, the task never starts again
    I4  no overlap: two executions of one task never run at the same time
    I5  fenced: no owner's call commits, or is told "ok", unless its sender is the rightful owner
    I6  no two acknowledged updates share a base version
    I8  no false death: no owner that renews in time loses its run
    heard  SPEC 4: a cancel finds a live owner to ask, or ends the run; it never starves
    known  SPEC 4: a claim sent again returns what the first one got

"Told ok" is part of I5 because an owner acts on it: an owner that is told its old intent stands
starts that task beside its successor's. An "ok" to an end is no leave to do anything: two that
agree how a run ended may both hear it.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.model.explorer.actors import OPERATOR, Worker
from tests.model.explorer.messages import ENDING_VERBS, OPERATOR_VERBS, Answer, Heard, Message, Verb
from tests.model.explorer.store import RECONCILER, Store

INVARIANTS = frozenset({"I2", "I3", "I4", "I5", "I6", "I8", "heard", "known"})


class Violation(NamedTuple):
    invariant: str
    sentence: str


class Ghost(NamedTuple):
    """Known to nobody in the world."""

    rightful: tuple[str, int] | None = None
    """Whose run it is: the last to claim it; nobody once it was ended from outside."""
    finished: frozenset[int] = frozenset()
    """Tasks whose result was committed."""


class Step(NamedTuple):
    """One message, handled."""

    message: Message
    before: Store
    after: Store
    answer: Answer
    wrote: bool


def remember(ghost: Ghost, step: Step) -> Ghost:
    verb = step.message.verb
    if not step.wrote:
        return ghost
    if verb in (Verb.CREATE, Verb.CLAIM):
        run = step.after.run
        assert run is not None
        return ghost._replace(rightful=(run.owner_id, run.fence) if run.owner_id else None)
    if verb in (Verb.RESULT, Verb.FINISH, Verb.STOP_AFTER):
        return ghost._replace(finished=ghost.finished | {step.message.task})
    if verb in OPERATOR_VERBS and step.after.run is not None and step.after.run.ended:
        return ghost._replace(rightful=None)
    return ghost


def check_step(step: Step, ghost: Ghost, workers: tuple[Worker, ...]) -> Violation | None:
    return (
        _one_end(step)
        or _fenced(step, ghost)
        or _base(step)
        or _no_false_death(step, workers)
        or _heard(step)
        or _known(step)
    )


def check_start(
    worker: Worker, task: int, others: tuple[Worker, ...], ghost: Ghost
) -> Violation | None:
    if task in ghost.finished:
        return Violation("I3", f"{worker.name} runs task {task} again after its result was stored")
    for other in others:
        if other.name != worker.name and other.running and other.task == task:
            return Violation("I4", f"{worker.name} and {other.name} run task {task} at once")
    return None


def check_renewal(worker: Worker, answer: Answer, ghost: Ghost) -> Violation | None:
    if answer.heard is Heard.OK and ghost.rightful != (worker.name, worker.fence):
        return Violation("I5", f"{worker.name} renewed a lease that is not its own")
    return None


def _one_end(step: Step) -> Violation | None:
    run, after = step.before.run, step.after.run
    if run is None or after is None or not run.ended or not step.wrote:
        return None
    return Violation(
        "I2",
        f"the run had ended as {run.status} at version {run.version}; "
        f"{step.message.verb} made it {after.status} at version {after.version}",
    )


def _fenced(step: Step, ghost: Ghost) -> Violation | None:
    message, run = step.message, step.before.run
    fenced = message.verb not in OPERATOR_VERBS and message.verb is not Verb.CLAIM
    if not fenced or run is None or step.answer.heard is not Heard.OK:
        return None
    if message.verb is Verb.CREATE:
        message = message._replace(fence=1)
    if step.wrote and (run.owner_id, run.fence) != (message.sender, message.fence):
        what = f"{message.verb} of {message.sender} (fence {message.fence}) was written"
    elif ghost.rightful != (message.sender, message.fence) and message.verb not in ENDING_VERBS:
        what = f"{message.sender} (fence {message.fence}) was told that its {message.verb} stands"
    else:
        return None
    return Violation("I5", f"{what}; the run is {run.owner_id or 'nobody'}'s at fence {run.fence}")


def _base(step: Step) -> Violation | None:
    base, run = step.message.base, step.before.run
    if base is None or run is None or step.answer.heard is not Heard.OK:
        return None
    if step.wrote and base != run.version:
        return Violation("I6", f"{step.message} was written on version {run.version}")
    if not step.wrote and not run.ended and step.before.journal[base] != step.message.id:
        return Violation("I6", f"{step.message} was told ok; {step.before.journal[base]} came next")
    return None


def _no_false_death(step: Step, workers: tuple[Worker, ...]) -> Violation | None:
    run, after, sender = step.before.run, step.after.run, step.message.sender
    if run is None or after is None:
        return None
    by = {worker.name: worker for worker in workers}
    writer = by.get(sender)
    if step.answer.heard is Heard.INVALID and writer is not None and writer.trust:
        return Violation("I8", f"{sender} holds the run and was told InvalidTransition")
    holder = by.get(run.owner_id or "")
    ours = (run.owner_id, run.fence) == (sender, step.message.fence)
    if not step.wrote or holder is None or holder.fence != run.fence or ours:
        return None
    taken = after.fence != run.fence or after.owner_id != run.owner_id
    excused = holder.excused and sender != OPERATOR
    if taken and (step.before.live or holder.trust or excused):
        did = "ended" if after.ended else "took"
        why = "renews in time" if holder.trust else "lives: only the store was away"
        return Violation("I8", f"{sender} {did} the run of {holder.name}, which {why}")
    return None


def _heard(step: Step) -> Violation | None:
    after = step.after.run
    if step.message.sender == RECONCILER or step.message.verb not in OPERATOR_VERBS:
        return None
    if not step.wrote or after is None or after.ended or step.before.live:
        return None
    return Violation("heard", "the cancel request was accepted with nobody there to hear it")


def _known(step: Step) -> Violation | None:
    if step.answer.heard is Heard.NOTHING and step.before.held_under(step.message):
        sender = step.message.sender
        return Violation("known", f"{sender} holds the run and was told that it has nothing")
    return None


def starved(refusals: int) -> Violation | None:
    if refusals < 2:
        return None
    return Violation("heard", "a busy owner keeps the operator's cancel out: refused twice over")


def abandoned(worker: Worker, answer: Answer) -> Violation | None:
    """An owner in good standing gives its run up because somebody else wrote a note."""
    if answer.heard is Heard.CONFLICT and worker.trust and answer.fence == worker.fence:
        return Violation("I8", f"{worker.name} renews in time and yet loses its run to a conflict")
    return None
