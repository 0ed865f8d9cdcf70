"""The rules every store is held to: births, writes, time, and calls that arrive twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from tenure.model.snapshot import Annotation
from tenure.model.status import RunStatus
from tenure.model.update import (
    CancelRequest,
    Changes,
    Consent,
    Effect,
    Fencing,
    LeaseRequest,
    NewRun,
    RunChange,
    Update,
    Write,
)
from tenure.ports.store import BatchUpdates
from tenure.testing.machine import draws
from tenure.testing.machine.draws import OWNERS, SECONDS, Draw
from tenure.testing.machine.driver import Call
from tenure.testing.machine.performing import Performing
from tenure.testing.machine.plain import RUN_ENDS
from tenure.testing.machine.runs import Run

Rule = Callable[[Any], bool]

_OPERATORS_DO = ("cancel", "annotate", "approve", "expire", "end", "tell")


def has_runs(machine: Performing) -> bool:
    return bool(machine.model.runs)


def can(protocol: type) -> Rule:
    """Powers the store lacks are not exercised."""
    return lambda machine: machine.has(protocol) and has_runs(machine)


class RunRules(Performing):
    """Births, and what owners and operators write."""

    def a_run(self, draw: Draw) -> Run:
        """Mostly one that still lives."""
        living = [name for name, run in self.model.runs.items() if not run.ended]
        names = list(self.model.runs) if not living or draw.seldom() else living
        return self.model.runs[draw.one(names)]

    def an_owned_run(self, draw: Draw) -> Run:
        """One that somebody holds, if there is any."""
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
        snapshot = draws.new_snapshot(draw, self._new_run_id(draw), self.clock.now(), owned)
        record = draws.plain_callbacks(snapshot)
        born = draws.effect(draw, record, Changes(), self.new_name, f"run.{snapshot.status}")
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
        """Often a few in a row: that is what owners do."""
        for _ in range(data.draw(st.integers(1, 3))):
            self.send("update_run", self.owner_update(Draw(data)))

    def owner_update(self, draw: Draw) -> Update:
        run = self.an_owned_run(draw)
        base = run.version
        if draw.seldom():
            base = max(1, base + draw.one((-1, -2, 1)))
        changes = draws.owner_changes(draw, run.record)
        return Update(
            run_id=run.record["run_id"],
            update_id=self.new_name("update"),
            base_version=base,
            lease=self.fencing(draw, run),
            effect=draws.effect(draw, run.record, changes, self.new_name),
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
                asked = draws.ending(draw, draw.one(ends))
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
        return draws.effect(draw, run.record, Changes(run=change), self.new_name, "operator.said")

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
        """A slow network: any earlier call, refused ones too, arrives once more."""
        self._resend(data.draw(st.sampled_from(self.sent)))

    def _resend(self, call: Call) -> None:
        if self.worth_repeating(call.method, call.args):
            self.perform(call)

    def worth_repeating(self, method: str, args: tuple[Any, ...]) -> bool:
        """The ports leave open what becomes of a claim that returns after everything it got was
        given back, and of a relay's claim after its time."""
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
        """Ownership must not notice."""
        self.clock.set_wall(self.clock.now() + timedelta(seconds=seconds))
        self._check_all()
