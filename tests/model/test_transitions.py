"""Every (status, change) pair, against tables written here from SPEC section 2 by hand."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

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
    done,
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


def pairs(text: str) -> list[tuple[str, str, bool]]:
    rules = table(text)
    return [(old, new, new in rules[old]) for old in rules for new in rules]


@pytest.mark.parametrize(
    ("written", "coded", "states"),
    [
        (RUN, status.RUN, RunStatus),
        (STEP, status.STEP, StepStatus),
        (HOST, status.HOST, HostStatus),
        (DELIVERY, status.DELIVERY, DeliveryState),
    ],
    ids=["run", "step", "host", "delivery"],
)
def test_the_tables_say_what_the_specification_says(
    written: str, coded: dict[str, frozenset[str]], states: type[StrEnum]
) -> None:
    assert set(states) == set(coded)
    assert {str(old): {str(new) for new in coded[old]} for old in coded} == table(written)


@pytest.mark.parametrize(("old", "new", "allowed"), pairs(RUN))
def test_every_pair_of_a_run(old: str, new: str, allowed: bool) -> None:
    run = at_status(old)
    before = as_bytes(run)
    # An ended run has no owner, so there the writer is an operator and no lease is live.
    write, now = (by_operator, Circumstances()) if old in RUN_ENDS else (by_owner, LIVE)
    update = write(run, effect(run=RunStatus(new)))
    if not allowed and new != old:
        with pytest.raises(InvalidTransition):
            apply(run, update, at=after(1), circumstances=now)
        assert as_bytes(run) == before
        return
    answer = apply(run, update, at=after(1), circumstances=now)
    assert answer.snapshot.status == new
    if old in RUN_ENDS:
        assert (answer.effect, answer.version) == (None, run.version)
        assert as_bytes(answer.snapshot) == before


@pytest.mark.parametrize("end", sorted(RUN_ENDS))
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
def test_nothing_but_notes_touches_an_ended_run(end: str, late: Effect) -> None:
    run = at_status(end)
    with pytest.raises(InvalidTransition, match="ended"):
        apply(run, by_operator(run, late), at=after(1))


@pytest.mark.parametrize(("old", "new", "allowed"), pairs(STEP))
def test_every_pair_of_a_step(old: str, new: str, allowed: bool) -> None:
    step = StepState(index=0, name="only", status=StepStatus(old))
    run = replace(running(steps=0), steps=(step,), counts=_counted(steps={old: 1}))
    before = as_bytes(run)
    update = by_owner(run, effect(steps={0: StepChange(status=StepStatus(new))}))
    _check_pair(run, lambda: apply(run, update, at=after(1)).snapshot, old, new, allowed)
    assert as_bytes(run) == before


@pytest.mark.parametrize(("old", "new", "allowed"), pairs(HOST))
def test_every_pair_of_a_host(old: str, new: str, allowed: bool) -> None:
    step = StepState(
        index=0,
        name="only",
        status=StepStatus.RUNNING,
        hosts={"web1": HostState(status=HostStatus(old)), "web2": HostState()},
    )
    run = replace(
        running(steps=0), steps=(step,), counts=_counted(steps={"running": 1}, hosts={old: 1})
    )
    before = as_bytes(run)
    change = StepChange(hosts={"web1": HostChange(status=HostStatus(new))})
    update = by_owner(run, effect(steps={0: change}))
    _check_pair(run, lambda: apply(run, update, at=after(1)).snapshot, old, new, allowed, "web1")
    assert as_bytes(run) == before


@pytest.mark.parametrize(("old", "new", "allowed"), pairs(HOST))
def test_every_pair_of_a_loop_item(old: str, new: str, allowed: bool) -> None:
    host = HostState(
        status=HostStatus.RUNNING, items=(ItemState(), ItemState(status=HostStatus(old)))
    )
    step = StepState(index=0, status=StepStatus.RUNNING, hosts={"web1": host})
    run = replace(
        running(steps=0),
        steps=(step,),
        counts=_counted(steps={"running": 1}, hosts={"running": 1}),
    )
    item = HostChange(items={1: ItemChange(status=HostStatus(new))})
    update = by_owner(run, effect(steps={0: StepChange(hosts={"web1": item})}))
    if not allowed and old != new:
        with pytest.raises(InvalidTransition, match="item 1"):
            apply(run, update, at=after(1))
    elif allowed:
        items = apply(run, update, at=after(1)).snapshot.steps[0].hosts["web1"].items
        assert [item.status for item in items] == ["pending", new]


def _counted(**counts: dict[str, int]) -> Counts:
    reached = {
        kind: {status: n for status, n in by_status.items() if status != "pending"}
        for kind, by_status in counts.items()
    }
    return msgspec.convert(reached | {"steps_total": 1, "hosts_total": 2}, Counts)


def _check_pair(
    run: RunSnapshot,
    act: Callable[[], RunSnapshot],
    old: str,
    new: str,
    allowed: bool,
    host: str | None = None,
) -> None:
    """Allowed: it happens. Same again: refused or nothing, never a change. Else: refused."""
    try:
        changed = act()
    except InvalidTransition:
        assert not allowed, f"{old} -> {new} must be allowed"
        return
    step = changed.steps[0]
    assert allowed or old == new, f"{old} -> {new} must be refused"
    assert (step.hosts[host].status if host else step.status) == new
    if old == new:
        assert as_bytes(step) == as_bytes(run.steps[0])


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


@pytest.mark.parametrize(
    ("old", "verb", "new"),
    [
        (old, *cell.split("="))
        for old, cells in table(DELIVERY_ENDS_AS).items()
        for cell in sorted(cells)
    ],
)
def test_every_pair_of_a_delivery(old: str, verb: str, new: str) -> None:
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
    after_it = VERBS[verb](delivery)
    assert after_it.state == new
    assert after_it.id == "d1"
    if old == new and (old != "waiting" or verb == "requeue"):
        assert as_bytes(after_it) == as_bytes(delivery)


def test_a_run_cannot_be_born_into_an_end_or_leave_one() -> None:
    """The whole walk: no sequence of two changes leads out of an end."""
    for end in RUN_ENDS:
        run = done(running(steps=0), run=RunStatus(end)).snapshot
        for new in RunStatus:
            if new != end:
                with pytest.raises(InvalidTransition):
                    apply(run, by_operator(run, effect(run=new)), at=after(1))


def test_what_an_end_does_is_defined_for_every_end() -> None:
    assert set(status.STEP_NOT_REACHED) == set(status.RUN[RunStatus.RUNNING])
    ends = set(status.RUN[RunStatus.RUNNING]) - {RunStatus.SUCCESS}
    assert set(status.STEP_CUT_SHORT) == set(status.HOST_CUT_SHORT) == ends
    assert set(status.HOST_NOT_REACHED) == status.STEP[StepStatus.RUNNING]
