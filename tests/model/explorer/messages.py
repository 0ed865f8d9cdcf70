"""Every call there is. A message is its content: equal messages are the same call sent again."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import NamedTuple

from tenure.model import compose
from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import HostStatus, Recovery, RunStatus, StepStatus
from tenure.model.update import (
    CancelRequest,
    Changes,
    Fencing,
    HostChange,
    LeaseRequest,
    NewRun,
    RunChange,
    StepChange,
    Update,
)

RUN_ID = "run-explored"
HOST = "web1"


class Verb(StrEnum):
    CREATE = "create"
    CLAIM = "claim"
    RELEASE = "release"
    INTENT = "intent"
    """A task may start; the first one also starts the run."""
    RERUN = "rerun"
    """What ran when its owner was lost runs again."""
    RESULT = "result"
    """A task's result together with the intent of the next."""
    FINISH = "finish"
    """The last result, and the run's success, and release."""
    STOP = "stop"
    """The owner obeys a cancel: the run is canceled, and released."""
    STOP_AFTER = "result+stop"
    INTERRUPT = "interrupt"
    OVERWRITE = "interrupt-by-read"
    CANCEL = "cancel"
    END = "end-as-canceled"
    ASK = "ask-to-cancel"


OPERATOR_VERBS = frozenset({Verb.CANCEL, Verb.END, Verb.ASK, Verb.OVERWRITE})
ENDING_VERBS = frozenset({Verb.FINISH, Verb.STOP, Verb.STOP_AFTER, Verb.INTERRUPT})
STARTING_VERBS = frozenset({Verb.INTENT, Verb.RERUN, Verb.RESULT})


class Message(NamedTuple):
    sender: str
    verb: Verb
    base: int | None = None
    fence: int = 0
    task: int = 0
    number: int = 0
    """Which of its sender's claims this is."""
    wary: bool = False
    """A claim that leaves expired leases alone (``ClaimRequest.expired`` is false)."""

    @property
    def id(self) -> str:
        return f"{self.sender}/{self.verb}/{self.task}/{self.number}/f{self.fence}/v{self.base}"

    @property
    def fencing(self) -> Fencing:
        return Fencing(self.sender, self.fence)

    def __str__(self) -> str:
        return str(self.verb) + (f"(v{self.base})" if self.base is not None else "")


class Heard(StrEnum):
    OK = "ok"
    LOST = "LeaseLost"
    CONFLICT = "VersionConflict"
    HELD = "LeaseHeld"
    NOTHING = "nothing to claim"
    INVALID = "InvalidTransition"


class View(NamedTuple):
    """What an owner knows of its run."""

    version: int
    status: RunStatus
    cancel: bool
    tasks: tuple[HostStatus, ...]


class Answer(NamedTuple):
    heard: Heard
    version: int = 0
    fence: int = 0
    cancel: bool = False
    view: View | None = None
    """For a claim: the record as claimed."""


def view_of(run: RunSnapshot) -> View:
    return View(
        run.version,
        run.status,
        run.cancel_requested_at is not None,
        tuple(step.hosts[HOST].status for step in run.steps),
    )


@cache
def planned(recovery: Recovery, tasks: int) -> RunSnapshot:
    """The run before its birth: ``tasks`` steps on one host."""
    steps = tuple(
        StepState(index=index, name=f"step-{index}", hosts={HOST: HostState()})
        for index in range(tasks)
    )
    return RunSnapshot(run_id=RUN_ID, workflow_name="explored", recovery=recovery, steps=steps)


@cache
def new_run(message: Message, recovery: Recovery, tasks: int) -> NewRun:
    """Queued for workers; or running, leased and with its first intent, all in one commit."""
    run = planned(recovery, tasks)
    if recovery is Recovery.RESUME:
        return compose.new_run(run, message.id, iter(()))
    first = StepState(
        index=0,
        name="step-0",
        status=StepStatus.RUNNING,
        hosts={HOST: HostState(status=HostStatus.RUNNING)},
    )
    born = RunSnapshot(
        run_id=RUN_ID,
        workflow_name="explored",
        recovery=recovery,
        status=RunStatus.RUNNING,
        steps=(first, *run.steps[1:]),
    )
    lease = LeaseRequest(owner_id=message.sender, seconds=60, claim_id=message.id)
    return compose.new_run(born, message.id, iter(()), lease=lease)


@cache
def update_of(message: Message, tasks: int) -> Update:
    run = planned(Recovery.RESUME, tasks)
    if message.verb is Verb.CANCEL:
        cancel = compose.cancel(run, message.id, iter(()), reason="operator")
        return Update(
            run_id=cancel.run_id,
            update_id=cancel.update_id,
            base_version=message.base,
            effect=cancel.effect,
            if_unowned=cancel.if_unowned,
        )
    return Update(
        run_id=RUN_ID,
        update_id=message.id,
        base_version=message.base,
        lease=None if message.verb in OPERATOR_VERBS else message.fencing,
        effect=compose.effect_of(run, _changes(message), iter(())),
        release=message.verb in ENDING_VERBS,
    )


def _changes(message: Message) -> Changes:
    task = message.task
    match message.verb:
        case Verb.INTENT:
            run = RunChange(status=RunStatus.RUNNING) if task == 0 else RunChange()
            return Changes(run=run, steps={task: _STARTED})
        case Verb.RERUN:
            return Changes(steps={task: _AGAIN})
        case Verb.RESULT:
            return Changes(steps={task: _SUCCEEDED, task + 1: _STARTED})
        case Verb.FINISH:
            return Changes(run=RunChange(status=RunStatus.SUCCESS), steps={task: _SUCCEEDED})
        case Verb.STOP_AFTER:
            return Changes(run=RunChange(status=RunStatus.CANCELED), steps={task: _SUCCEEDED})
        case Verb.STOP | Verb.END:
            return Changes(run=RunChange(status=RunStatus.CANCELED))
        case Verb.INTERRUPT | Verb.OVERWRITE:
            lost = RunChange(status=RunStatus.INTERRUPTED, interrupted_reason="its owner is gone")
            return Changes(run=lost)
        case Verb.ASK:
            return Changes(run=RunChange(cancel=CancelRequest(reason="operator")))
        case _:
            raise AssertionError(f"{message.verb} is no update")


_STARTED = StepChange(
    status=StepStatus.RUNNING, hosts={HOST: HostChange(status=HostStatus.RUNNING, attempts=1)}
)
_AGAIN = StepChange(hosts={HOST: HostChange(status=HostStatus.RUNNING, message="runs again")})
_SUCCEEDED = StepChange(
    status=StepStatus.SUCCESS, hosts={HOST: HostChange(status=HostStatus.SUCCESS)}
)
