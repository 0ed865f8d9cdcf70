"""The calls and their values, mostly sensible and sometimes not.

Most draws look at the model first: guesses would seldom be accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from msgspec import UNSET

from tenure.model.leases import ClaimRequest, Lease, Purpose
from tenure.model.outbox import Delivered, GiveUp, Outcome, PutBack, RetryLater
from tenure.model.query import RunFilter
from tenure.model.snapshot import (
    Annotation,
    Approval,
    CallbackTarget,
    ErrorInfo,
    HostState,
    RunSnapshot,
    RunSummary,
    StepState,
)
from tenure.model.status import HostStatus, Recovery, RunStatus, StepKind, StepStatus
from tenure.model.update import (
    CancelRequest,
    Changes,
    Consent,
    Effect,
    Event,
    Fencing,
    HostChange,
    ItemChange,
    LeaseRequest,
    NewDelivery,
    NewRun,
    Position,
    RunChange,
    StepChange,
    Update,
    Write,
)
from tenure.ports.callbacks import Outbox
from tenure.ports.leases import LeaseStore
from tenure.ports.store import BatchUpdates, EventLog, LogKey, LogStore
from tenure.testing.machine.driver import Call, Performing
from tenure.testing.machine.model import (
    HOST_ENDS,
    RUN_ENDS,
    STEP_ENDS,
    Plain,
    Run,
    check_order,
    check_same,
    plain,
)

T = TypeVar("T")

OWNERS = ("owner-a", "owner-b", "owner-c")
QUEUES = ("default", "night")
HOSTS = ("web1", "web2", "web3")
SECONDS = (5.0, 60.0, 600.0)
TARGETS = (
    CallbackTarget(name="hook", url="https://hooks.example/run"),
    CallbackTarget(name="chat", events=("run", "step", "host"), headers={"X-Team": "web"}),
)

NextId = Callable[[str], str]


class Draw:
    """``data.draw`` with the few forms used here."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def __call__(self, strategy: st.SearchStrategy[T]) -> T:
        return self._data.draw(strategy)

    def one(self, choices: Sequence[T]) -> T:
        return self(st.sampled_from(choices))

    def some(self, choices: Sequence[T], at_least: int = 0) -> list[T]:
        chosen = [choice for choice in choices if self.maybe()]
        return chosen if len(chosen) >= at_least else list(choices[:at_least])

    def seldom(self) -> bool:
        """One time in eight or so."""
        return self(st.integers(0, 7)) == 7

    def maybe(self) -> bool:
        return self(st.booleans())


def new_snapshot(draw: Draw, run_id: str, now: datetime, owned: bool) -> RunSnapshot:
    later = draw.one((None, None, None, -60, 20, 3600))
    running = owned and draw.maybe()
    return RunSnapshot(
        run_id=run_id,
        workflow_name=draw.one(("deploy", "backup")),
        status=RunStatus.RUNNING if running else RunStatus.QUEUED,
        recovery=draw.one(tuple(Recovery)),
        approval=Approval(required=draw.seldom(), by=draw.one((None, None, "ann"))),
        queue=draw.one(QUEUES),
        priority=draw.one((0, 0, -100, 7, 100)),
        run_after=None if later is None else now + timedelta(seconds=later),
        labels=draw.one(({}, {"team": "web"}, {"team": "db", "zone": "a"})),
        vars=draw.one(({}, {"release": "1.4", "deep": {"list": [1, None, "ü"]}})),
        callbacks=tuple(draw.some(TARGETS)),
        steps=tuple(_new_step(draw, index, running) for index in range(draw.one((0, 1, 2, 3)))),
    )


def _new_step(draw: Draw, index: int, running: bool) -> StepState:
    begins = running and index == 0
    status = HostStatus.RUNNING if begins else HostStatus.PENDING
    return StepState(
        index=index,
        name=f"step {index}",
        action="cmd.run",
        status=StepStatus.RUNNING if begins else StepStatus.PENDING,
        hosts={name: HostState(status=status) for name in draw.some(HOSTS)},
    )


def owner_changes(draw: Draw, record: Plain) -> Changes:
    """What a run's owner writes: usually the next thing to do, sometimes anything at all."""
    run = RunChange()
    if record["status"] == "queued":
        run = RunChange(status=RunStatus.RUNNING)
    elif draw.seldom():
        run = ending(draw, draw.one([status for status in RunStatus if status in RUN_ENDS]))
    elif draw.seldom():
        run = RunChange(message=draw.one(("half way", None)), last_error=_error(draw))
    wild = draw.seldom()
    steps = _any_step(draw, record) if wild else _next_step(draw, record)
    return Changes(run=run, steps=steps)


def ending(draw: Draw, status: RunStatus) -> RunChange:
    error = _error(draw) if status in (RunStatus.FAILED, RunStatus.INTERRUPTED) else None
    reason = "owner gone" if status == RunStatus.INTERRUPTED else None
    return RunChange(status=status, message="the end", error=error, interrupted_reason=reason)


def _error(draw: Draw) -> ErrorInfo:
    return ErrorInfo(kind="exit", message=draw.one(("exit 1", "exit 2")), failed_hosts=("web1",))


def _next_step(draw: Draw, record: Plain) -> dict[int, StepChange]:
    open_steps = [step for step in record["steps"] if step["status"] not in STEP_ENDS]
    if not open_steps:
        return _handler(draw, record) if draw.seldom() else {}
    step = open_steps[0]
    if step["status"] == "pending":
        hosts = {name: _starts() for name in _among(draw, list(step["hosts"]))}
        if draw.seldom():
            hosts["unplanned"] = _starts()
        return {step["index"]: StepChange(status=StepStatus.RUNNING, hosts=hosts)}
    open_hosts = [name for name, host in step["hosts"].items() if host["status"] not in HOST_ENDS]
    hosts = {name: _next_host(draw, step["hosts"][name]) for name in _among(draw, open_hosts)}
    if set(hosts) >= set(open_hosts) and draw.maybe():
        end = draw.one((StepStatus.SUCCESS, StepStatus.FAILED, StepStatus.CANCELED))
        return {step["index"]: StepChange(status=end, message="done", hosts=hosts)}
    return {step["index"]: StepChange(hosts=hosts)}


def _handler(draw: Draw, record: Plain) -> dict[int, StepChange]:
    index = len(record["steps"])
    plan = StepState(
        index=index,
        name="reload",
        kind=StepKind.HANDLER,
        action="cmd.run",
        notified_by=index - 1 if index else None,
        hosts={name: HostState() for name in draw.some(HOSTS)},
    )
    return {index: StepChange(plan=plan, status=StepStatus.RUNNING)}


def _among(draw: Draw, names: list[str]) -> list[str]:
    return draw.some(names) if names else []


def _starts() -> HostChange:
    return HostChange(status=HostStatus.RUNNING, attempts=1)


def _next_host(draw: Draw, host: Plain) -> HostChange:
    if host["status"] == "pending":
        return _starts()
    kind = draw.one(("success", "failed", "unknown", "output", "item"))
    match kind:
        case "output":
            return HostChange(stdout=draw.one(("a\n", "ü\x00")), truncated=True)
        case "item":
            status = draw.one((HostStatus.RUNNING, HostStatus.SUCCESS))
            return HostChange(
                items={len(host["items"]): ItemChange(status=status, kind="exit", exit_code=0)}
            )
        case "unknown" if host["status"] == "unknown":
            return HostChange(status=HostStatus.RUNNING, attempts=host["attempts"] + 1)
        case _:
            return HostChange(
                status=HostStatus(kind),
                exit_code=0,
                changed=True,
                vars={"release": kind},
                withheld=("token",),
                kind="exit" if kind == "failed" else UNSET,
            )


def _any_step(draw: Draw, record: Plain) -> dict[int, StepChange]:
    index = draw(st.integers(0, len(record["steps"]) + 1))
    if index > len(record["steps"]):  # a gap
        return {index: StepChange(plan=StepState(index=index, name="far off"))}
    hosts = {name: HostChange(status=draw.one(tuple(HostStatus))) for name in draw.some(HOSTS)}
    message: dict[str, Any] = {"message": "anything"} if draw.maybe() else {}
    status: dict[str, Any] = {"status": draw.one(tuple(StepStatus))} if draw.maybe() else {}
    return {index: StepChange(hosts=hosts, **message, **status)}


def effect(
    draw: Draw, record: Plain, changes: Changes, next_id: NextId, what: str = "note.test"
) -> Effect:
    """The changes with an event, so that every version shows in the journal, and callbacks."""
    events = [Event(type=what, data={"n": next_id("event")})]
    status = changes.run.status
    if isinstance(status, RunStatus):
        events.append(Event(type=f"run.{status}", status=status, message="so it is"))
    names = [target["name"] for target in record["callbacks"]]
    owed = draw.some(names) if names else []
    if names and not owed and draw.seldom() and draw.seldom():
        owed = ["nobody"]
    return Effect(
        changes=changes,
        events=tuple(events),
        deliveries=tuple(
            NewDelivery(id=next_id("delivery"), target=name, seq=seq)
            for name in owed
            for seq in range(len(events))
        ),
    )


def plain_callbacks(snapshot: RunSnapshot) -> Plain:
    return {"callbacks": [{"name": target.name} for target in snapshot.callbacks]}


# Rules for every store: creations, writes, time, and repeated calls.

Rule = Callable[[Any], bool]

_OPERATORS_DO = ("cancel", "annotate", "approve", "expire", "end", "tell")


def has_runs(machine: Performing) -> bool:
    return bool(machine.model.runs)


def can(protocol: type) -> Rule:
    """Only for stores with this protocol."""
    return lambda machine: machine.has(protocol) and has_runs(machine)


class RunRules(Performing):
    """Births, and what owners and operators write."""

    def a_run(self, draw: Draw) -> Run:
        """Mostly one that still lives."""
        living = [name for name, run in self.model.runs.items() if not run.ended]
        names = list(self.model.runs) if not living or draw.seldom() else living
        return self.model.runs[draw.one(names)]

    def an_owned_run(self, draw: Draw) -> Run:
        """One with an owner, if there is any."""
        owned = [name for name, run in self.model.runs.items() if run.record["owner_id"]]
        return self.model.runs[draw.one(owned)] if owned else self.a_run(draw)

    def fencing(self, draw: Draw, run: Run) -> Fencing:
        """The run's own, or a wrong one: an older fence, another owner, both."""
        right = Fencing(run.record["owner_id"] or OWNERS[0], run.record["fence"])
        if not draw.seldom():
            return right
        return Fencing(draw.one(OWNERS), max(0, right.fence + draw.one((0, -1, 1))))

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.create(data)

    @rule(data=st.data())
    def create(self, data: st.DataObject) -> None:
        self.send("create_run", self.new_run(Draw(data)))

    def new_run(self, draw: Draw) -> NewRun:
        owned = draw.maybe()
        lease = LeaseRequest(
            owner_id=draw.one(OWNERS), seconds=draw.one(SECONDS), claim_id=self.new_name("claim")
        )
        snapshot = new_snapshot(draw, self._new_run_id(draw), self.clock.now(), owned)
        record = plain_callbacks(snapshot)
        born = effect(draw, record, Changes(), self.new_name, f"run.{snapshot.status}")
        return NewRun(
            snapshot=snapshot,
            update_id=self.new_name("create"),
            definition=draw.one((None, "steps: []\n")),
            lease=lease if owned else None,
            approval_seconds=draw.one((None, 5.0, 60.0)),
            events=born.events,
            deliveries=born.deliveries,
        )

    def _new_run_id(self, draw: Draw) -> str:
        if self.model.runs and draw.seldom():
            return draw.one([*self.model.runs, "short"])
        return self.new_name("run")

    @precondition(has_runs)
    @rule(data=st.data())
    def owner_writes(self, data: st.DataObject) -> None:
        for _ in range(data.draw(st.integers(1, 3))):
            self.send("update_run", self.owner_update(Draw(data)))

    def owner_update(self, draw: Draw) -> Update:
        run = self.an_owned_run(draw)
        base = run.version
        if draw.seldom():
            base = max(1, base + draw.one((-1, -2, 1)))
        changes = owner_changes(draw, run.record)
        return Update(
            run_id=run.record["run_id"],
            update_id=self.new_name("update"),
            base_version=base,
            lease=self.fencing(draw, run),
            effect=effect(draw, run.record, changes, self.new_name),
            release=draw.seldom(),
        )

    @precondition(has_runs)
    @rule(data=st.data(), what=st.sampled_from(_OPERATORS_DO))
    def operator_writes(self, data: st.DataObject, what: str) -> None:
        self.send("update_run", self.operator_update(Draw(data), what))

    def operator_update(self, draw: Draw, what: str) -> Update:
        run = self.an_owned_run(draw) if draw.maybe() else self.a_run(draw)
        unsure = run.record["owner_id"] is not None and not self.knows_liveness
        back = draw.one((None, None, 0, 1))
        base = None if back is None else max(1, run.version - back)
        request = CancelRequest(reason=draw.one(("enough", None)), by="ops")
        asked, ended = RunChange(), None
        match what:
            case "cancel":
                asked = RunChange(cancel=request)
                ended = None if unsure else RunChange(status=RunStatus.CANCELED, cancel=request)
            case "approve":
                note = draw.one((None, "looks good"))
                asked = RunChange(approve=Consent(by=draw.one(("ann", "bob")), note=note))
            case "tell":
                asked = RunChange(journal_only=True)
                base = base or run.version
            case "expire" if not unsure:
                asked = RunChange(status=RunStatus.CANCELED, if_overdue=True)
            case "end" if not unsure:
                ends = [status for status in RunStatus if status in RUN_ENDS]
                asked = ending(draw, draw.one(ends))
            case _:
                name = draw.one(("note-1", self.new_name("note")))
                asked = RunChange(annotate=(Annotation(id=name, data={"a": [1]}),))
        return Update(
            run_id=run.record["run_id"],
            update_id=self.new_name("operator"),
            base_version=base,
            effect=self._operator_effect(draw, run, asked),
            if_unowned=self._operator_effect(draw, run, ended) if ended is not None else None,
        )

    def _operator_effect(self, draw: Draw, run: Run, change: RunChange) -> Effect:
        return effect(draw, run.record, Changes(run=change), self.new_name, "operator.said")

    @precondition(can(BatchUpdates))
    @rule(data=st.data(), size=st.integers(1, 4))
    def batch(self, data: st.DataObject, size: int) -> None:
        draw = Draw(data)
        writes: list[Write] = [self._any_write(draw) for _ in range(size)]
        self.send("update_runs", writes)

    def _any_write(self, draw: Draw) -> Write:
        match draw.one(("owner", "owner", "create", "annotate", "cancel")):
            case "owner":
                return self.owner_update(draw)
            case "create":
                return self.new_run(draw)
            case what:
                return self.operator_update(draw, what)

    @precondition(lambda self: bool(self.applied))
    @rule(data=st.data())
    def resend_applied(self, data: st.DataObject) -> None:
        """An answer was lost: what has been done is asked for again, at once or much later."""
        recent = self.applied[-2:] if data.draw(st.booleans()) else self.applied
        self._resend(data.draw(st.sampled_from(recent)))

    @precondition(lambda self: bool(self.sent))
    @rule(data=st.data())
    def resend(self, data: st.DataObject) -> None:
        self._resend(data.draw(st.sampled_from(self.sent)))

    def _resend(self, call: Call) -> None:
        if self.worth_repeating(call.method, call.args):
            self.perform(call)

    def worth_repeating(self, method: str, args: tuple[Any, ...]) -> bool:
        """The ports leave open a repeated claim after all of it was released, and a relay's claim
        after its end."""
        match method:
            case "claim_runs":
                runs = self.model.runs.values()
                return any(self.model.held_under(run, args[0]) for run in runs)
            case "claim_deliveries":
                return any(self.model.in_flight(one) for one in self.model.held_by(args[0]))
        return True


class TimeRules(Performing):
    def _check_all(self) -> None:
        for run_id in self.model.runs:
            self.check_run(run_id)

    @rule(seconds=st.sampled_from((0.001, 1.0, 4.0, 10.0, 61.0, 700.0)))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self._check_all()

    @rule(seconds=st.sampled_from((-3600, -1, 3600)))
    def wall_clock_is_set(self, seconds: int) -> None:
        self.clock.set_wall(self.clock.now() + timedelta(seconds=seconds))
        self._check_all()


# Rules for leases, callbacks and output.


class LeaseRules(RunRules):
    def _request(self, draw: Draw) -> LeaseRequest:
        return LeaseRequest(
            owner_id=draw.one(OWNERS),
            seconds=draw.one(SECONDS),
            claim_id=self.new_name("claim"),
            expired=not draw.seldom(),
        )

    @precondition(can(LeaseStore))
    @rule(data=st.data(), purpose=st.sampled_from(Purpose))
    def claim_alone(self, data: st.DataObject, purpose: Purpose) -> None:
        self.claim_one(data, purpose)

    def claim_one(self, data: st.DataObject, purpose: Purpose) -> None:
        draw = Draw(data)
        run_id = "run-that-is-not" if draw.seldom() else self.a_run(draw).record["run_id"]
        self.send("claim_run", run_id, self._request(draw), purpose)

    @precondition(can(LeaseStore))
    @rule(data=st.data(), limit=st.integers(1, 3))
    def claim_many(self, data: st.DataObject, limit: int) -> None:
        draw = Draw(data)
        request = ClaimRequest(
            owner_id=draw.one(OWNERS),
            seconds=draw.one(SECONDS),
            claim_id=self.new_name("claims"),
            limit=limit,
            queues=tuple(draw.some(QUEUES, at_least=1)),
            purpose=draw.one((Purpose.EXECUTE, Purpose.EXECUTE, Purpose.RECONCILE)),
            expired=not draw.seldom(),
            dead_owners=frozenset(draw.some(OWNERS)) if draw.seldom() else frozenset(),
        )
        self.send("claim_runs", request)

    @precondition(can(LeaseStore))
    @rule(data=st.data(), number=st.integers(1, 3))
    def renew(self, data: st.DataObject, number: int) -> None:
        draw = Draw(data)
        leases = [self._lease(draw) for _ in range(number)]
        self.send("renew_leases", leases, draw.one(SECONDS))

    def _lease(self, draw: Draw) -> Lease:
        run = self.a_run(draw)
        fencing = self.fencing(draw, run)
        return Lease(
            run_id=run.record["run_id"],
            owner_id=fencing.owner_id,
            fence=fencing.fence,
            expires_at=self.clock.now(),
        )

    @precondition(can(LeaseStore))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        draw = Draw(data)
        run = self.a_run(draw)
        fencing = self.fencing(draw, run)
        self.send("release_lease", run.record["run_id"], fencing, self.new_name("release"))

    @precondition(can(LeaseStore))
    @rule(data=st.data())
    def frozen_owner_thaws(self, data: st.DataObject) -> None:
        """An owner is silent, another takes over, and the first sends an earlier write again."""
        self.clock.advance(max(SECONDS))
        self.claim_one(data, Purpose.EXECUTE)
        writes = [call for call in self.applied if call.method == "update_run"]
        if writes:
            self.perform(data.draw(st.sampled_from(writes)))

    @precondition(can(LeaseStore))
    @rule()
    def reboot(self) -> None:
        """All leases end."""
        self.clock.reboot()
        for run_id in self.model.runs:
            self.check_run(run_id)


class OutboxRules(RunRules):
    @precondition(can(Outbox))
    @rule(limit=st.sampled_from((1, 2, 100)), seconds=st.sampled_from(SECONDS))
    def relay_claims(self, limit: int, seconds: float) -> None:
        self.send("claim_deliveries", self.new_name("token"), limit, seconds)

    @precondition(lambda self: bool(self.model.deliveries))
    @precondition(can(Outbox))
    @rule(data=st.data())
    def relay_settles(self, data: st.DataObject) -> None:
        draw = Draw(data)
        known = list(self.model.deliveries.values())
        held = [one for one in known if one["token"] is not None]
        one = draw.one(held if held and not draw.seldom() else known)
        token = one["token"] or one["settled_token"] or "token-never"
        outcomes: tuple[Outcome, ...] = (
            Delivered(),
            GiveUp("404"),
            RetryLater(10.0, "503"),
            PutBack(),
        )
        wrong = draw.seldom()
        self.send("settle_delivery", one["id"], "wrong" if wrong else token, draw.one(outcomes))

    @precondition(lambda self: bool(self.model.deliveries))
    @precondition(can(Outbox))
    @rule(data=st.data())
    def person_requeues(self, data: st.DataObject) -> None:
        self.send("requeue_delivery", Draw(data).one([*self.model.deliveries, "delivery-none"]))


class LogRules(RunRules):
    @precondition(can(LogStore))
    @rule(data=st.data(), chunk=st.sampled_from((b"one\n", b"two\n", b"\xff\x00")))
    def task_prints(self, data: st.DataObject, chunk: bytes) -> None:
        draw = Draw(data)
        run = self.a_run(draw)
        run_id = run.record["run_id"]
        key = LogKey(step=0, host=draw.one(("web1", "web2")), stream="stdout")
        end = len(self.model.logs.get((run_id, key), b""))
        offset = max(0, end + draw.one((1, -len(chunk)))) if draw.seldom() else end
        if offset + len(chunk) > end > offset:  # overlapping: the port does not say
            offset = end
        self.send("append", run_id, self.fencing(draw, run), key, offset, chunk)


# Rules that only read.

_NOT_IN_SUMMARIES = ("vars", "callbacks", "steps")


class ReadRules(RunRules):
    def _filter(self, draw: Draw) -> RunFilter:
        """At most two conditions."""
        some = [run.record["created_at"] for run in self.model.runs.values()]
        conditions: dict[str, Any] = {
            "statuses": frozenset(draw.some(tuple(RunStatus))),
            "workflow_name": "deploy",
            "queue": draw.one(QUEUES),
            "labels": {"team": draw.one(("web", "db"))},
            "created_from": draw.one(some),
            "created_to": draw.one(some),
            "owner_id": draw.one(OWNERS),
            "held": True,
            "canceling": True,
            "unapproved": True,
        }
        chosen = draw(st.lists(st.sampled_from(sorted(conditions)), max_size=2, unique=True))
        return RunFilter(**{name: conditions[name] for name in chosen})

    @precondition(has_runs)
    @rule(data=st.data(), limit=st.sampled_from((1, 2, 50)))
    def list_all(self, data: st.DataObject, limit: int) -> None:
        where = self._filter(Draw(data))
        expected = [run for run in self.model.runs.values() if _matches(run, where)]
        found = self._pages("list_runs", where, limit)
        self._check_summaries(expected, found)
        for newer, older in pairwise(found):
            number = {name: run.number for name, run in self.model.runs.items()}
            later = newer.created_at and older.created_at and newer.created_at > older.created_at
            assert later or number[newer.run_id] > number[older.run_id], "not newest first"

    @precondition(can(LeaseStore))
    @rule(data=st.data(), limit=st.sampled_from((1, 2, 50)))
    def list_claimable(self, data: st.DataObject, limit: int) -> None:
        where = self._filter(Draw(data))
        expected = [run for run in self.model.listed_runnable() if _matches(run, where)]
        found = self._pages("list_runnable", where, limit)
        self._check_summaries(expected, found)
        check_order(self.model.runs[summary.run_id] for summary in found)

    def _pages(self, method: str, where: RunFilter, limit: int) -> list[RunSummary]:
        page = self.ask(method, where, limit=limit)
        found = list(page.items)
        while page.cursor is not None:
            assert len(page.items) == limit, "a short page that is not the last"
            page = self.ask(method, where, limit=limit, cursor=page.cursor)
            found += page.items
        return found

    def _check_summaries(self, expected: list[Run], found: list[RunSummary]) -> None:
        names = [summary.run_id for summary in found]
        assert len(set(names)) == len(names), "a run is on two pages"
        check_same("listed runs", sorted(run.record["run_id"] for run in expected), sorted(names))
        for summary in found:
            read = self.as_read(self.model.runs[summary.run_id])
            short = {name: read[name] for name in read if name not in _NOT_IN_SUMMARIES}
            check_same(f"summary of {summary.run_id}", short, plain(summary))

    @precondition(can(EventLog))
    @rule(data=st.data(), limit=st.integers(1, 4))
    def follow(self, data: st.DataObject, limit: int) -> None:
        """Reads on from the last event seen."""
        run = self.a_run(Draw(data))
        places = [(event["version"], event["seq"]) for event in run.events]
        seen = [(0, -1), *places]
        after = Draw(data).one(seen)
        events = self.ask("read_events", run.record["run_id"], Position(*after), limit=limit)
        wanted = [place for place in places if place > after][:limit]
        assert [tuple(event.position) for event in events] == wanted


def _matches(run: Run, where: RunFilter) -> bool:
    record = run.record
    asks = record["approval"]["required"] and record["approval"]["at"] is None
    return (
        (not where.statuses or record["status"] in where.statuses)
        and where.workflow_name in (None, record["workflow_name"])
        and where.queue in (None, record["queue"])
        and where.owner_id in (None, record["owner_id"])
        and (not (where.held or where.canceling) or record["owner_id"] is not None)
        and (not where.canceling or record["cancel_requested_at"] is not None)
        and (not where.unapproved or (asks and record["status"] == "queued"))
        and where.labels.items() <= record["labels"].items()
        and (where.created_from is None or record["created_at"] >= where.created_from)
        and (where.created_to is None or record["created_at"] < where.created_to)
    )
