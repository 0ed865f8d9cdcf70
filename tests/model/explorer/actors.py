"""What each one does next, and what an answer makes of it. They see answers, never the store."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from tenure.model.status import HostStatus, RunStatus
from tests.model.explorer.messages import (
    ENDING_VERBS,
    STARTING_VERBS,
    Answer,
    Heard,
    Message,
    Verb,
    View,
)
from tests.model.explorer.rules import Rules
from tests.model.explorer.store import RECONCILER

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
