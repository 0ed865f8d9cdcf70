"""The protocol as the search sees it: rules, messages, and one record judged by the model.

A message is its content: equal messages are the same call sent again. ``handle`` is a pure function
of store and message, so its answers are remembered: the search meets the same few thousand pairs
again and again."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tenure.model import compose
from tenure.model.decide import CHECKS, Check, Circumstances, apply
from tenure.model.errors import (
    InvalidTransition,
    LeaseHeld,
    LeaseLost,
    NotRunnable,
    VersionConflict,
)
from tenure.model.leases import Purpose, check_repeated, claim, create, holds, release
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


class Rules(NamedTuple):
    """Every rule that closes a hole; as given here all are on."""

    checks: tuple[Check, ...] = CHECKS
    """The checks of ``apply`` and their order."""
    outside_end_raises_fence: bool = True
    reconcile_by_claim: bool = True
    """Off: expiry is concluded from a read, then written with that read's version as base."""
    claim_then_read: bool = True
    """Off: a claim answers with rows as its statement saw them when it began, and (as in a store
    of rows) the rows an owner writes are checked against what the owner was shown."""
    operator_any_base: bool = True
    owner_rebases: bool = True
    one_call_cancel: bool = True
    """Off: "end it", and if that is refused "ask its owner"."""
    claim_memory: bool = True
    create_checks_owner: bool = True
    """Off: a creation that carried a lease, sent again, is told "ok" whoever owns the run now."""
    wait_after_outage: bool = True
    noop_writes_nothing: bool = True
    trust_window: bool = True
    """Off: an owner runs tasks on whatever the store last said, until the store says lost."""
    trust_from_first_sending: bool = True
    """Off: a claim sent again after a lost answer trusts from the second sending on."""


class Bounds(NamedTuple):
    recovery: Recovery = Recovery.RESUME
    tasks: int = 1
    claims: int = 2
    """For each claimer."""
    faults: int = 1
    """Calls delayed, or answers held up."""
    silences: int = 1
    drains: int = 0
    cancels: int = 1
    outages: int = 0
    failovers: int = 0


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

AT = datetime(2030, 1, 1, tzinfo=UTC)
RECONCILER = "reconciler"


class Record:
    """An interned snapshot: the same content is the same object, hence cheap to compare."""

    __slots__ = ("snapshot",)

    def __init__(self, snapshot: RunSnapshot) -> None:
        self.snapshot = snapshot


_records: dict[bytes, Record] = {}
_encoder = msgspec.msgpack.Encoder(order="deterministic")


def interned(snapshot: RunSnapshot) -> Record:
    return _records.setdefault(_encoder.encode(snapshot), Record(snapshot))


class Store(NamedTuple):
    record: Record | None = None
    journal: tuple[str, ...] = ()
    """``journal[v - 1]`` is the ``update_id`` of version ``v``."""
    live: bool = False
    """There is an owner, and its lease has not expired."""
    claim_id: str | None = None
    begun: tuple[str, Record] | None = None
    """Only without ``claim_then_read``: whose claim statement began, and what it saw."""
    shown: Record | None = None
    """Only without ``claim_then_read``: the rows the present owner was shown."""

    @property
    def run(self) -> RunSnapshot | None:
        return self.record.snapshot if self.record else None

    def held_under(self, message: Message) -> bool:
        run = self.run
        return run is not None and self.claim_id == message.id and run.owner_id == message.sender


class Handled(NamedTuple):
    store: Store
    answer: Answer

    def wrote(self, before: Store) -> bool:
        return self.store.record is not before.record


class Desk:
    """Handles messages under given rules."""

    def __init__(self, rules: Rules, bounds: Bounds) -> None:
        self._rules = rules
        self._bounds = bounds
        self._known: dict[tuple[Store, Message], Handled] = {}

    def handle(self, store: Store, message: Message) -> Handled:
        key = (store, message)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._handle(store, message)
        return known

    def _handle(self, store: Store, message: Message) -> Handled:
        if message.verb is Verb.CREATE:
            return self._create(store, message)
        run = store.run
        assert run is not None, "nobody writes before the run exists"
        try:
            if message.verb is Verb.CLAIM:
                return self._claim(store, run, message)
            if message.verb is Verb.RELEASE:
                return self._release(store, run, message)
            return self._update(store, run, message)
        except LeaseLost as lost:
            return Handled(store, Answer(Heard.LOST, run.version, lost.fence))
        except LeaseHeld:
            return Handled(store, Answer(Heard.HELD))
        except VersionConflict as stale:
            cancel = stale.cancel_requested_at is not None
            return Handled(store, Answer(Heard.CONFLICT, stale.version, stale.fence, cancel))
        except InvalidTransition:
            return Handled(store, Answer(Heard.INVALID))

    def _create(self, store: Store, message: Message) -> Handled:
        new = new_run(message, self._bounds.recovery, self._bounds.tasks)
        if store.record is None:
            born = create(new, AT)
            claim_id = message.id if new.lease else None
            store = Store(interned(born), (message.id,), new.lease is not None, claim_id)
        run = store.run
        assert run is not None
        if self._rules.create_checks_owner:
            try:
                check_repeated(run, store.journal[0], new)
            except LeaseLost:
                return Handled(store, Answer(Heard.LOST, run.version, run.fence))
        return Handled(store, Answer(Heard.OK, 1, run.fence, view=view_of(run)))

    def _update(self, store: Store, run: RunSnapshot, message: Message) -> Handled:
        update = update_of(message, self._bounds.tasks)
        base = update.base_version
        stale = base is not None and base < run.version
        applied = apply(
            _with_rows(run, store.shown),
            update,
            at=AT,
            circumstances=Circumstances(
                lease_live=store.live, applied_id=store.journal[base or 0] if stale else None
            ),
            checks=self._rules.checks,
        )
        after, version = applied.snapshot, applied.version
        if applied.effect is not None:
            if update.lease is None and not self._rules.outside_end_raises_fence:
                after = replace(after, fence=run.fence)
            store = _written(store, after, message.id)
        elif run.ended and base is None and not self._rules.noop_writes_nothing:
            after, version = replace(run, version=run.version + 1), run.version + 1
            store = _written(store, after, message.id)
        cancel = after.cancel_requested_at is not None
        return Handled(store, Answer(Heard.OK, version, after.fence, cancel))

    def _claim(self, store: Store, run: RunSnapshot, message: Message) -> Handled:
        """As ``claim_runs``: a run this owner already holds is not among those to be had."""
        if not (self._rules.claim_memory and store.held_under(message)):
            if store.live or (message.wary and run.owner_id is not None):
                return Handled(store, Answer(Heard.NOTHING))
            purpose = Purpose.RECONCILE if message.sender == RECONCILER else Purpose.EXECUTE
            try:
                taken = claim(run, message.sender, at=AT, lease_live=False, purpose=purpose)
            except NotRunnable:
                return Handled(store, Answer(Heard.NOTHING))
            begun = store.begun
            store = _written(store, taken.snapshot, message.id)
            store = store._replace(live=True, claim_id=message.id, begun=None, shown=None)
            if begun is not None and begun[0] == message.sender:
                store = store._replace(shown=begun[1])
        held = store.run
        assert held is not None
        view = view_of(_with_rows(held, store.shown))
        return Handled(store, Answer(Heard.OK, held.version, held.fence, view.cancel, view))

    def _release(self, store: Store, run: RunSnapshot, message: Message) -> Handled:
        given_back = release(run, message.fencing, AT)
        if given_back.event is not None:
            store = _written(store, given_back.snapshot, message.id)
        return Handled(store, Answer(Heard.OK, given_back.snapshot.version, run.fence))

    def renew(self, store: Store, fencing: Fencing) -> Handled:
        run = store.run
        assert run is not None
        if not holds(run, fencing):
            return Handled(store, Answer(Heard.LOST))
        cancel = run.cancel_requested_at is not None
        return Handled(store._replace(live=True), Answer(Heard.OK, run.version, run.fence, cancel))


def _written(store: Store, run: RunSnapshot, update_id: str) -> Store:
    owned = run.owner_id is not None
    return store._replace(
        record=interned(run),
        journal=(*store.journal, update_id),
        live=store.live and owned,
        claim_id=store.claim_id if owned else None,
        shown=None,
    )


def _with_rows(run: RunSnapshot, shown: Record | None) -> RunSnapshot:
    if shown is None:
        return run
    return replace(run, steps=shown.snapshot.steps, counts=shown.snapshot.counts)
