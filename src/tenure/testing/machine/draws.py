"""What to ask of a store: values that are mostly sensible and sometimes not.

Most draws look at the model first, for a machine that only guessed would seldom get a run past
its first refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from hypothesis import strategies as st
from msgspec import UNSET

from tenure.model.snapshot import (
    Approval,
    CallbackTarget,
    ErrorInfo,
    HostState,
    RunSnapshot,
    StepState,
)
from tenure.model.status import HostStatus, Recovery, RunStatus, StepKind, StepStatus
from tenure.model.update import (
    Changes,
    Effect,
    Event,
    HostChange,
    ItemChange,
    NewDelivery,
    RunChange,
    StepChange,
)
from tenure.testing.machine.plain import HOST_ENDS, RUN_ENDS, STEP_ENDS, Plain

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
    """Whatever the types allow."""
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
