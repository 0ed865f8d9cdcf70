"""Workers, reconciler and operator; the state of everything at one moment; what must never happen.

Owners see answers, never the store. Each check looks at one step; the ghosts remember what it
needs.

    I2  one end: an ended record never changes
    I3  no re-run: once a task's result is committed, the task never starts again
    I4  no overlap: two executions of one task never run at the same time
    I5  fenced: no owner's call commits, or is told "ok", unless its sender is the rightful owner
    I6  no two acknowledged updates share a base version
    I8  no false death: no owner that renews in time loses its run
    heard  a cancel finds a live owner to ask, or ends the run; it never starves
    known  a claim sent again returns what the first one got

"Told ok" is part of I5 because an owner acts on it: an owner that is told its old intent stands
starts that task beside its successor's. An "ok" to an end is no leave to do anything: two that
agree how a run ended may both hear it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from tenure.model.snapshot import RunSnapshot
from tenure.model.status import HostStatus, Recovery, RunStatus
from tests.model.explorer.protocol import (
    ENDING_VERBS,
    OPERATOR_VERBS,
    RECONCILER,
    STARTING_VERBS,
    Answer,
    Bounds,
    Desk,
    Heard,
    Message,
    Rules,
    Store,
    Verb,
    View,
)

OPERATOR = "operator"


class Call(NamedTuple):
    """Sent, and no answer yet. ``answer`` is one that is held up and may still arrive."""

    message: Message
    answer: Answer | None = None
    sent: bool = True
    """False: decided, about to be sent for the first time."""


class Phase(IntEnum):
    IDLE = 0
    HOLDING = 1
    LEAVING = 2
    """It drains: it decides nothing more, only a call already made is seen to its end."""


class Worker(NamedTuple):
    """A worker, or the reconciler: claims, then does what ``decide`` says."""

    name: str
    phase: Phase = Phase.IDLE
    claims: int = 0
    fence: int = 0
    view: View | None = None
    call: Call | None = None
    trust: bool = False
    deluded: bool = False
    """Only without ``trust_from_first_sending``: it trusts for longer than its lease lasts."""
    excused: bool = False
    """Its trust ran out only because the store was away."""
    task: int | None = None
    """Its intent is acknowledged and its result is not."""
    running: bool = False
    result: bool = False
    """The task has ended and its result is in hand."""
    release_due: bool = False
    """It drains and its release is unanswered."""

    def lost(self) -> Worker:
        """It stops, kills what runs, and forgets the run."""
        return Worker(self.name, claims=self.claims)

    def may_start(self, rules: Rules) -> bool:
        return self.trust or not rules.trust_window

    def silenced(self, excused: bool, rules: Rules) -> Worker:
        """Its trust window closed: the supervisor kills what runs."""
        return self._replace(
            trust=False, excused=excused, running=self.running and not rules.trust_window
        )


def claim_message(worker: Worker) -> Message:
    return Message(worker.name, Verb.CLAIM, number=worker.claims + 1)


def release_message(worker: Worker) -> Message:
    return Message(worker.name, Verb.RELEASE, fence=worker.fence)


def decide(worker: Worker) -> Message | None:
    """The owner's next update, from what it knows; ``None`` while it waits to trust again."""
    view = worker.view
    assert view is not None
    if worker.name == RECONCILER:
        return Message(worker.name, Verb.INTERRUPT, view.version, worker.fence)
    task = worker.task
    if task is not None and worker.result:
        if task == len(view.tasks) - 1:
            verb = Verb.FINISH
        else:
            verb = Verb.STOP_AFTER if view.cancel else Verb.RESULT
        return Message(worker.name, verb, view.version, worker.fence, task)
    if view.cancel:
        return Message(worker.name, Verb.STOP, view.version, worker.fence)
    if task is not None:
        return None
    nexts = (i for i, status in enumerate(view.tasks) if status is not HostStatus.SUCCESS)
    task = next(nexts)
    verb = Verb.RERUN if view.tasks[task] is HostStatus.RUNNING else Verb.INTENT
    return Message(worker.name, verb, view.version, worker.fence, task)


def hear(worker: Worker, message: Message, answer: Answer, rules: Rules) -> Worker:
    """The worker after an answer to its call. Whether it starts its task is the world's to say."""
    worker = worker._replace(call=None)
    if answer.heard is Heard.OK:
        return _go_on(worker, message, answer)
    if answer.heard is Heard.CONFLICT and rules.owner_rebases and answer.fence == worker.fence:
        return _rebase(worker, message, answer)
    return worker.lost()


def _go_on(worker: Worker, message: Message, answer: Answer) -> Worker:
    if answer.view is not None:
        worker = worker._replace(phase=Phase.HOLDING, fence=answer.fence, view=answer.view)
        born_with_intent = message.verb is Verb.CREATE
        return worker._replace(task=0) if born_with_intent else worker
    if worker.phase is Phase.LEAVING:
        return worker if worker.release_due else worker.lost()
    if message.verb in ENDING_VERBS or message.verb is Verb.OVERWRITE:
        return worker.lost()
    assert message.verb in STARTING_VERBS
    view = worker.view
    assert view is not None
    tasks = list(view.tasks)
    task = message.task
    if message.verb is Verb.RESULT:
        tasks[task] = HostStatus.SUCCESS
        task += 1
    tasks[task] = HostStatus.RUNNING
    view = View(answer.version, RunStatus.RUNNING, answer.cancel, tuple(tasks))
    return worker._replace(view=view, task=task, result=False)


def _rebase(worker: Worker, message: Message, answer: Answer) -> Worker:
    """The same delta on the version the refusal named, without reading; or another decision,
    should the refusal have told of a cancel request."""
    if worker.phase is Phase.LEAVING:
        return worker._replace(call=Call(message._replace(base=answer.version), sent=False))
    view = worker.view
    assert view is not None
    return worker._replace(view=view._replace(version=answer.version, cancel=answer.cancel))


class Operator(NamedTuple):
    """Cancels once. Careful operators know nothing; careless ones remember what they read."""

    call: Call | None = None
    read: int | None = None
    """Only without ``operator_any_base``: the version read before the next cancel."""
    refused: int = 0
    ask: bool = False
    """Only without ``one_call_cancel``: ending it was refused, now the owner is asked."""
    done: bool = False


def cancel_message(operator: Operator, rules: Rules) -> Message:
    if operator.ask:
        return Message(OPERATOR, Verb.ASK)
    if not rules.one_call_cancel:
        return Message(OPERATOR, Verb.END)
    return Message(OPERATOR, Verb.CANCEL, operator.read)


def operator_hears(operator: Operator, answer: Answer) -> Operator:
    match answer.heard:
        case Heard.HELD:
            return Operator(ask=True)
        case Heard.CONFLICT:
            return Operator(refused=operator.refused + 1)
        case _:
            return Operator(done=True)


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


class Weather(IntEnum):
    UP = 0
    DOWN = 1
    """No call gets through; time goes on."""
    BACK = 2
    """Up again for less than one renew interval."""


class Left(NamedTuple):
    """How much may still go wrong."""

    faults: int
    silences: int
    drains: int
    outages: int
    failovers: int


class World(NamedTuple):
    store: Store
    workers: tuple[Worker, ...]
    operator: Operator
    delayed: tuple[Message, ...]
    left: Left
    ghost: Ghost = Ghost()
    weather: Weather = Weather.UP
    replica: tuple[Store, Ghost] | None = None
    """What a failover would bring back: everything before the newest claim."""

    def put(self, worker: Worker) -> World:
        return self._replace(
            workers=tuple(worker if old.name == worker.name else old for old in self.workers)
        )


class Move(NamedTuple):
    line: str
    world: World
    violation: Violation | None = None


def first_world(rules: Rules, bounds: Bounds) -> World:
    """The run is about to be created, by its first owner or for whoever claims it."""
    embedded = bounds.recovery is Recovery.INTERRUPT
    names = ("worker-a", RECONCILER) if embedded else ("worker-a", "worker-b")
    left = Left(bounds.faults, bounds.silences, bounds.drains, bounds.outages, bounds.failovers)
    operator = Operator(done=not bounds.cancels)
    world = World(Store(), tuple(Worker(name) for name in names), operator, (), left)
    if embedded:
        creation = Message("worker-a", Verb.CREATE)
        return world.put(Worker("worker-a", claims=bounds.claims, call=Call(creation, sent=False)))
    born = Desk(rules, bounds).handle(Store(), Message("submitter", Verb.CREATE))
    return world._replace(store=born.store)


def still_granted(world: World, worker: Worker) -> bool:
    """Whether the lease that an answer tells of has been live ever since it was given."""
    run = world.store.run
    return (
        run is not None
        and world.store.live
        and (run.owner_id, run.fence) == (worker.name, worker.fence)
    )


def still_trusted(world: World, run: RunSnapshot) -> bool:
    """The one rule of time: while its owner trusts it, a lease does not expire."""
    return any(
        worker.trust and not worker.deluded and worker.fence == run.fence
        for worker in world.workers
        if worker.name == run.owner_id
    )


def spend_fault(world: World) -> World:
    return world._replace(left=world.left._replace(faults=world.left.faults - 1))
