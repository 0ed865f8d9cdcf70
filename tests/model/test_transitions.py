"""Every (status, change) pair, against tables written here from SPEC section 2 by hand."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenure.model import status
from tenure.model.decide import Circumstances, apply
from tenure.model.errors import InvalidTransition
from tenure.model.outbox import (
    Delivered,
    Delivery,
    GiveUp,
    PutBack,
    RetryLater,
    requeue,
    settle,
)
from tenure.model.snapshot import (
    CallbackTarget,
    Counts,
    HostState,
    ItemState,
    RunSnapshot,
    StepState,
)
from tenure.model.status import DeliveryState, HostStatus, RunStatus, StepStatus
from tenure.model.update import Consent, Effect, HostChange, ItemChange, RecordedEvent, StepChange
from tests.model.samples import (
    AT,
    LIVE,
    after,
    as_bytes,
    at_status,
    by_operator,
    by_owner,
    effect,
    running,
)

RUN = """
queued: running failed canceled interrupted
running: success failed canceled interrupted
success:
failed:
canceled:
interrupted:
"""
STEP = """
pending: running skipped canceled interrupted
running: success failed skipped canceled interrupted
success:
failed:
skipped:
canceled:
interrupted:
"""
HOST = """
pending: running skipped canceled interrupted unreachable
running: success failed skipped canceled interrupted unreachable unknown
unknown: running success failed skipped canceled interrupted unreachable
success:
failed:
skipped:
canceled:
interrupted:
unreachable:
"""
DELIVERY = """
waiting: delivered dead
delivered: waiting
dead: waiting
"""
RUN_ENDS = {"success", "failed", "canceled", "interrupted"}


def table(text: str) -> dict[str, set[str]]:
    rows = (line.partition(":") for line in text.strip().splitlines())
    return {state: set(followers.split()) for state, _, followers in rows}


TABLES: dict[str, tuple[str, Any, type[StrEnum]]] = {
    "run": (RUN, status.RUN, RunStatus),
    "step": (STEP, status.STEP, StepStatus),
    "host": (HOST, status.HOST, HostStatus),
    "delivery": (DELIVERY, status.DELIVERY, DeliveryState),
}


@pytest.mark.parametrize("kind", TABLES)
def test_the_tables_say_what_the_specification_says(kind: str) -> None:
    written, coded, states = TABLES[kind]
    assert set(states) == set(coded)
    assert {str(old): {str(new) for new in coded[old]} for old in coded} == table(written)


def placed(kind: str, old: str) -> RunSnapshot:
    """A run in which the thing in question has this status."""
    if kind == "run":
        return at_status(old)
    step_status, host = "running", HostState(status=HostStatus.RUNNING)
    match kind:
        case "step":
            step_status, host = old, HostState()
        case "host":
            host = HostState(status=HostStatus(old))
        case "item":
            host = replace(host, items=(ItemState(status=HostStatus(old)), ItemState()))
    hosts = {} if kind == "step" else {"web1": host, "web2": HostState()}
    step = StepState(index=0, name="only", status=StepStatus(step_status), hosts=hosts)
    reached = {"steps": {step_status}, "hosts": {str(each.status) for each in hosts.values()}}
    counts = {
        name: {status: 1 for status in statuses if status != "pending"}
        for name, statuses in reached.items()
    }
    counted = msgspec.convert(counts | {"steps_total": 1, "hosts_total": 2}, Counts)
    return replace(running(steps=0), steps=(step,), counts=counted)


def changed(kind: str, new: str) -> Effect:
    match kind:
        case "run":
            return effect(run=RunStatus(new))
        case "step":
            return effect(steps={0: StepChange(status=StepStatus(new))})
        case "host":
            host = HostChange(status=HostStatus(new))
        case _:
            host = HostChange(items={0: ItemChange(status=HostStatus(new))})
    return effect(steps={0: StepChange(hosts={"web1": host})})


def status_of(kind: str, run: RunSnapshot) -> str:
    match kind:
        case "run":
            return run.status
        case "step":
            return run.steps[0].status
        case "host":
            return run.steps[0].hosts["web1"].status
    return run.steps[0].hosts["web1"].items[0].status


PAIRS = [
    (kind, old)
    for kind, text in {"run": RUN, "step": STEP, "host": HOST, "item": HOST}.items()
    for old in table(text)
]


@pytest.mark.parametrize(("kind", "old"), PAIRS)
def test_every_pair(kind: str, old: str) -> None:
    """Allowed: it happens. The same again: refused or nothing, never a change. Else: refused."""
    run = placed(kind, old)
    before = as_bytes(run)
    # An ended run has no owner, so there the writer is an operator and no lease is live.
    ended = kind == "run" and old in RUN_ENDS
    write, now = (by_operator, Circumstances()) if ended else (by_owner, LIVE)
    followers = table({"run": RUN, "step": STEP}.get(kind, HOST))
    for new in followers:
        allowed = new in followers[old]
        update = write(run, changed(kind, new))
        try:
            answer = apply(run, update, at=after(1), circumstances=now)
        except InvalidTransition:
            assert not allowed, f"{old} -> {new} must be allowed"
            assert kind != "run" or new != old
        else:
            assert allowed or new == old, f"{old} -> {new} must be refused"
            assert status_of(kind, answer.snapshot) == new
            if ended:
                assert (answer.effect, answer.version) == (None, run.version)
                assert as_bytes(answer.snapshot) == before
            elif new == old:
                assert as_bytes(answer.snapshot.steps) == as_bytes(run.steps)
        assert as_bytes(run) == before


@pytest.mark.parametrize(
    "late",
    [
        effect(message="later"),
        effect(interrupted_reason="later"),
        effect(unconfirmed_hosts=("web1",)),
        effect(error=None),
        effect(last_error=None),
        effect(approve=Consent(by="ann")),
        effect(steps={0: StepChange(message="later")}),
    ],
)
def test_nothing_but_notes_touches_an_ended_run(late: Effect) -> None:
    for end in sorted(RUN_ENDS):
        run = at_status(end)
        with pytest.raises(InvalidTransition, match="ended"):
            apply(run, by_operator(run, late), at=after(1))


EVENT = RecordedEvent(type="run.failed", run_id="run-00001", version=4, seq=0, at=AT, fence=1)
VERBS: dict[str, Callable[[Delivery], Delivery]] = {
    "delivered": lambda d: settle(d, "t", Delivered(), at=after(1), due_at=after(9)),
    "dead": lambda d: settle(d, "t", GiveUp("gone"), at=after(1), due_at=after(9)),
    "retry": lambda d: settle(d, "t", RetryLater(8, "503"), at=after(1), due_at=after(9)),
    "back": lambda d: settle(d, "t", PutBack(), at=after(1), due_at=after(9)),
    "requeue": lambda d: requeue(d, after(1)),
}
DELIVERY_ENDS_AS = """
waiting: delivered=delivered dead=dead retry=waiting back=waiting requeue=waiting
delivered: delivered=delivered dead=delivered retry=delivered back=delivered requeue=waiting
dead: delivered=dead dead=dead retry=dead back=dead requeue=waiting
"""


@pytest.mark.parametrize("old", table(DELIVERY_ENDS_AS))
def test_every_verb_of_a_delivery(old: str) -> None:
    delivery = Delivery(
        id="d1",
        run_id="run-00001",
        workflow_name="deploy",
        target=CallbackTarget(name="hook"),
        event=EVENT,
        run_status=RunStatus.FAILED,
        state=DeliveryState(old),
        due_at=AT,
        token="t" if old == "waiting" else None,
        settled_token=None if old == "waiting" else "t",
    )
    for cell in table(DELIVERY_ENDS_AS)[old]:
        verb, new = cell.split("=")
        after_it = VERBS[verb](delivery)
        assert (after_it.state, after_it.id) == (new, "d1")
        if old == new and (old != "waiting" or verb == "requeue"):
            assert as_bytes(after_it) == as_bytes(delivery)


def test_what_an_end_does_is_defined_for_every_end() -> None:
    assert set(status.STEP_NOT_REACHED) == set(status.RUN[RunStatus.RUNNING])
    ends = set(status.RUN[RunStatus.RUNNING]) - {RunStatus.SUCCESS}
    assert set(status.STEP_CUT_SHORT) == set(status.HOST_CUT_SHORT) == ends
    assert set(status.HOST_NOT_REACHED) == status.STEP[StepStatus.RUNNING]
