"""Complete updates: an event for every status, a callback for every target that asked, and what
becomes of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.model import compose
from tenure.model.decide import apply
from tenure.model.errors import DeliveryLost
from tenure.model.leases import create
from tenure.model.outbox import (
    Delivered,
    Delivery,
    GiveUp,
    Outcome,
    PutBack,
    RetryLater,
    as_callback_error,
    origin_of,
    requeue,
    settle,
)
from tenure.model.snapshot import (
    Annotation,
    Approval,
    CallbackError,
    CallbackTarget,
    ErrorInfo,
    HostState,
    RunSnapshot,
    StepState,
)
from tenure.model.status import DeliveryState, HostStatus, RunStatus, StepStatus
from tenure.model.update import (
    Changes,
    HostChange,
    LeaseRequest,
    NewRun,
    RecordedEvent,
    RunChange,
    StepChange,
)
from tests.model.samples import AT, LIVE, after, finish, queued, running, start

ALL = CallbackTarget(name="all", events=("run", "step", "host"))
RUNS = CallbackTarget(name="runs")
HOSTS = CallbackTarget(name="hosts", events=("host",))
TARGETS = (ALL, RUNS, HOSTS)


def delivery_ids() -> Iterator[str]:
    return (f"d{n}" for n in count())


def test_hosts_then_their_step_then_the_run_and_a_start_before_its_hosts() -> None:
    changes = Changes(
        run=RunChange(status=RunStatus.FAILED, message="no", error=_error()),
        steps={
            0: finish(StepStatus.FAILED, web1=HostStatus.FAILED, web2=HostStatus.SUCCESS),
            1: start("web1"),
        },
    )
    events = compose.describe(running(), changes)
    assert [(event.type, event.step, event.host) for event in events] == [
        ("host.failed", "step0", "web1"),
        ("host.success", "step0", "web2"),
        ("step.failed", "step0", None),
        ("step.running", "step1", None),
        ("host.running", "step1", "web1"),
        ("run.failed", None, None),
    ]
    assert all(event.type == f"{event.kind}.{event.status}" for event in events)
    assert (events[-1].message, events[-1].error) == ("no", _error())
    assert [event.step_index for event in events] == [0, 0, 0, 1, 1, None]


def _error() -> ErrorInfo:
    return ErrorInfo(kind="exit", message="code 1", step="step0", host="web1")


def test_an_added_step_is_named_by_its_plan() -> None:
    plan = StepState(index=2, name="reload")
    changes = Changes(steps={2: StepChange(plan=plan, status=StepStatus.RUNNING)})
    (event,) = compose.describe(running(), changes)
    assert (event.step, event.step_index) == ("reload", 2)


_status_maps = st.dictionaries(
    st.integers(0, 1),
    st.builds(
        StepChange,
        status=st.sampled_from(StepStatus),
        hosts=st.dictionaries(
            st.sampled_from(["web1", "web2"]),
            st.builds(HostChange, status=st.sampled_from(HostStatus)),
        ),
    ),
)


@settings(deadline=None)
@given(_status_maps, st.none() | st.sampled_from(RunStatus))
def test_one_event_per_status_and_one_delivery_per_matching_target(
    steps: dict[int, StepChange], status: RunStatus | None
) -> None:
    run = RunChange() if status is None else RunChange(status=status)
    made = compose.effect_of(
        running(callbacks=TARGETS), Changes(run=run, steps=steps), delivery_ids()
    )
    hosts = sum(len(step.hosts) for step in steps.values())
    runs = status is not None
    assert len(made.events) == hosts + len(steps) + runs
    owed = [(delivery.seq, delivery.target) for delivery in made.deliveries]
    expected = [
        (seq, target.name)
        for seq, event in enumerate(made.events)
        for target in TARGETS
        if event.kind in target.events
    ]
    assert owed == expected
    assert len(owed) == hosts * 2 + len(steps) + runs * 2
    assert len({delivery.id for delivery in made.deliveries}) == len(owed)


def test_events_that_are_no_status_are_journaled_but_not_sent() -> None:
    made = compose.cancel(queued(callbacks=TARGETS), "u", delivery_ids(), reason="stop", by="ann")
    assert made.if_unowned is not None
    assert [event.type for event in made.if_unowned.events] == ["run.canceled", "cancel.requested"]
    assert {(d.seq, d.target) for d in made.if_unowned.deliveries} == {(0, "all"), (0, "runs")}
    assert (made.effect.deliveries, made.base_version, made.lease) == ((), None, None)


def test_a_birth_tells_the_intents_it_carries() -> None:
    step = StepState(
        index=0,
        name="drain",
        status=StepStatus.RUNNING,
        hosts={"web1": HostState(status=HostStatus.RUNNING), "web2": HostState()},
    )
    snapshot = RunSnapshot(
        run_id="run-00001", workflow_name="w", status=RunStatus.RUNNING, steps=(step,)
    )
    lease = LeaseRequest(owner_id="o", seconds=60, claim_id="c")
    made = compose.new_run(snapshot, "u1", delivery_ids(), lease=lease)
    begun = ["run.queued", "run.running", "step.running", "host.running"]
    assert [event.type for event in made.events] == begun
    assert create(made, AT).owner_id == "o"
    assert isinstance(made, NewRun)


def test_cancel_asks_a_live_owner_and_ends_a_run_without_one() -> None:
    run = running()
    update = compose.cancel(run, "u", delivery_ids(), reason="stop")
    asked = apply(run, update, at=after(1), circumstances=LIVE)
    assert (asked.snapshot.status, asked.snapshot.cancel_reason) == (RunStatus.RUNNING, "stop")
    assert asked.snapshot.fence == run.fence
    ended = apply(run, update, at=after(1))
    assert (ended.snapshot.status, ended.snapshot.message) == (RunStatus.CANCELED, "stop")
    assert (ended.snapshot.fence, ended.snapshot.owner_id) == (run.fence + 1, None)
    assert ended.snapshot.cancel_requested_at == after(1)


def test_annotate_and_approve_may_say_any_base() -> None:
    note = compose.annotate("run-00001", Annotation(id="n1", data={"a": 1}, by="ann"))
    assert (note.update_id, note.base_version, note.lease) == ("n1", None, None)
    yes = compose.approve("run-00001", "u2", "ann")
    for update, kind in ((note, "run.annotated"), (yes, "run.approved")):
        run = queued(approval=Approval(required=True))
        answer = apply(run, update, at=after(1))
        assert answer.effect is not None
        assert [event.type for event in answer.effect.events] == [kind]


def waiting(**fields: Any) -> Delivery:
    event = RecordedEvent(type="run.failed", run_id="run-00001", version=4, seq=0, at=AT, fence=1)
    given: dict[str, Any] = {
        "id": "d1",
        "run_id": "run-00001",
        "workflow_name": "deploy",
        "target": CallbackTarget(name="hook"),
        "event": event,
        "run_status": RunStatus.FAILED,
        "due_at": AT,
        "token": "mine",
    }
    return Delivery(**given | fields)


def settled(delivery: Delivery, outcome: Outcome, token: str = "mine") -> Delivery:
    return settle(delivery, token, outcome, at=after(1), due_at=after(9))


def test_given_up_is_a_dead_letter_that_shows_on_its_run() -> None:
    dead = settled(waiting(attempts=7), GiveUp("410 gone"))
    assert (dead.state, dead.attempts, dead.due_at) == (DeliveryState.DEAD, 8, AT)
    assert as_callback_error(dead) == CallbackError(
        target="hook", event="run.failed", error="410 gone", attempts=8, at=after(1)
    )


@pytest.mark.parametrize("outcome", [Delivered(), RetryLater(8, "x"), GiveUp("x"), PutBack()])
@pytest.mark.parametrize("holder", ["other", None])
def test_only_the_token_that_holds_it_settles(outcome: Outcome, holder: str | None) -> None:
    with pytest.raises(DeliveryLost, match="d1"):
        settled(waiting(token=holder), outcome)


def test_sent_again_under_the_same_id_from_the_start() -> None:
    dead = settled(waiting(attempts=7), GiveUp("410"))
    again = requeue(dead, after(50))
    assert (again.id, again.state, again.attempts, again.due_at) == (
        "d1",
        DeliveryState.WAITING,
        0,
        after(50),
    )
    assert (again.redelivery, again.settled_at, again.token) == (True, None, None)
    with pytest.raises(DeliveryLost):
        settled(again, Delivered())


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://hooks.example/run", "https://hooks.example:443"),
        ("HTTPS://Hooks.Example:443/other?token=x#y", "https://hooks.example:443"),
        ("https://user:secret@hooks.example", "https://hooks.example:443"),
        ("http://[::1]:8080/run", "http://::1:8080"),
        ("https://hooks.example:99999/", "https://hooks.example:99999/"),
        ("", ""),
        (None, "hook"),
    ],
)
def test_origin_is_the_receiver_behind_a_url(url: str | None, origin: str) -> None:
    assert origin_of(CallbackTarget(name="hook", url=url)) == origin
