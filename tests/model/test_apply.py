"""What an accepted update does: counting, stamping, closing, and never touching the old value."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.model.decide import apply
from tenure.model.errors import InvalidTransition, Refused, StoreRejected
from tenure.model.snapshot import (
    CallbackTarget,
    HostState,
    ItemState,
    StepState,
)
from tenure.model.status import TERMINAL_RUN, HostStatus, RunStatus, StepKind, StepStatus
from tenure.model.update import (
    Effect,
    Event,
    HostChange,
    ItemChange,
    NewDelivery,
    StepChange,
)
from tests.model.samples import (
    AT,
    BAD,
    OK,
    after,
    as_bytes,
    by_owner,
    done,
    effect,
    finish,
    half_done,
    owned,
    running,
    start,
    statuses,
)


# -- what every accepted update does ------------------------------------------------------------
def test_all_that_can_be_said_of_a_host_arrives() -> None:
    said: dict[str, Any] = {
        "message": "hot",
        "kind": "exit",
        "exit_code": 3,
        "attempts": 2,
        "changed": True,
        "stdout": "out",
        "stderr": "err",
        "truncated": True,
        "vars": {"a": 1},
        "withheld": ("token",),
    }
    assert {*said, "status", "items"} == set(HostChange.__struct_fields__)
    change = StepChange(hosts={"web2": HostChange(status=BAD, **said)})
    host = done(half_done(), steps={0: change}).snapshot.steps[0].hosts["web2"]
    assert {name: getattr(host, name) for name in said} == said


def test_version_rises_by_one_and_the_old_value_stays_as_it_was() -> None:
    run = half_done()
    before = as_bytes(run)
    answer = done(run, steps={0: finish(StepStatus.SUCCESS, web2=OK)}, at=after(3))
    assert (answer.version, answer.snapshot.version) == (run.version + 1, run.version + 1)
    assert as_bytes(run) == before


@pytest.mark.parametrize("step_back", [0.0, 1.0, 86400.0])
def test_updated_at_moves_forward_even_if_the_clock_does_not(step_back: float) -> None:
    run = done(running(), message="a", at=after(10)).snapshot
    again = done(run, message="b", at=after(10 - step_back)).snapshot
    assert again.updated_at == after(10) + timedelta(microseconds=1)


# -- times --------------------------------------------------------------------------------------
def test_times_are_stamped_where_a_status_moves_and_nowhere_else() -> None:
    run = owned()
    assert (run.created_at, run.started_at, run.finished_at) == (AT, None, None)
    run = done(run, run=RunStatus.RUNNING, steps={0: start("web1")}, at=after(1)).snapshot
    step, host = run.steps[0], run.steps[0].hosts["web1"]
    assert (run.started_at, step.started_at, host.started_at) == (after(1),) * 3
    assert (run.finished_at, step.finished_at, host.finished_at) == (None,) * 3
    run = done(run, steps={0: finish(StepStatus.FAILED, web1=BAD)}, at=after(2)).snapshot
    step, host = run.steps[0], run.steps[0].hosts["web1"]
    assert (step.finished_at, host.finished_at) == (after(2), after(2))
    assert (step.started_at, host.started_at, run.started_at) == (after(1),) * 3
    run = done(run, run=RunStatus.FAILED, at=after(3)).snapshot
    assert (run.finished_at, run.updated_at, run.created_at) == (after(3), after(3), AT)
    assert run.steps[0].finished_at == after(2)
    assert run.steps[1].finished_at == after(3)


def test_a_rerun_of_an_unknown_host_has_new_times() -> None:
    run = done(half_done(), steps={0: finish(None, web2=HostStatus.UNKNOWN)}, at=after(3)).snapshot
    run = done(run, steps={0: finish(None, web2=HostStatus.RUNNING)}, at=after(4)).snapshot
    host = run.steps[0].hosts["web2"]
    assert (host.status, host.started_at, host.finished_at) == (
        HostStatus.RUNNING,
        after(4),
        None,
    )


# -- steps, hosts, items ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({7: StepChange(status=StepStatus.RUNNING)}, "has no step 7"),
        ({0: finish(None, web9=HostStatus.RUNNING)}, "does not plan host 'web9'"),
        ({1: finish(None, web1=HostStatus.RUNNING)}, "has not started"),
        ({0: finish(None, web1=HostStatus.RUNNING)}, "is success"),
        ({0: StepChange(hosts={"web1": HostChange(message="late")})}, "cannot change"),
        ({0: StepChange(hosts={"web2": HostChange(items={1: ItemChange()})})}, "has 0 items"),
        ({0: StepChange(hosts={"web2": HostChange(items={-1: ItemChange()})})}, "has 0 items"),
    ],
)
def test_what_the_plan_does_not_hold_is_refused(change: dict[int, StepChange], why: str) -> None:
    run = half_done()
    before = as_bytes(run)
    with pytest.raises(InvalidTransition, match=why):
        done(run, steps=change)
    assert as_bytes(run) == before


def test_an_ended_step_takes_nothing_more() -> None:
    run = done(half_done(), steps={0: finish(StepStatus.FAILED, web2=BAD)}).snapshot
    for late in (StepChange(message="late"), finish(None, web3=HostStatus.RUNNING)):
        with pytest.raises(InvalidTransition, match="ended as failed"):
            done(run, steps={0: late})


def test_a_handler_can_join_with_its_plan_only() -> None:
    planned = StepState(
        index=9,
        name="reload",
        kind=StepKind.HANDLER,
        action="cmd.run",
        notified_by=1,
        status=StepStatus.SUCCESS,
        hosts={"web1": HostState(status=HostStatus.SUCCESS, attempts=4)},
    )
    run = done(
        running(), steps={2: StepChange(plan=planned, status=StepStatus.RUNNING)}, at=after(1)
    ).snapshot
    added = run.steps[2]
    assert (added.index, added.name, added.kind, added.action) == (
        2,
        "reload",
        StepKind.HANDLER,
        "cmd.run",
    )
    assert added.notified_by == 1
    assert (added.status, added.started_at) == (StepStatus.RUNNING, after(1))
    assert added.hosts == {"web1": HostState()}
    assert (run.counts.steps_total, run.counts.hosts_total) == (3, 5)


def test_what_an_update_does_not_name_stays() -> None:
    run = done(half_done(), steps={0: StepChange(hosts={"web2": HostChange(stdout="a")})}).snapshot
    run = done(run, steps={0: StepChange(hosts={"web2": HostChange(stderr="b")})}).snapshot
    host = run.steps[0].hosts["web2"]
    assert (host.stdout, host.stderr, host.status) == ("a", "b", HostStatus.RUNNING)


@pytest.mark.parametrize("index", [-1, 7])
def test_an_added_step_follows_the_last_one(index: int) -> None:
    change = StepChange(plan=StepState(index=index, name="reload"), status=StepStatus.RUNNING)
    with pytest.raises(Refused):
        done(running(), steps={index: change})


# -- the run's own fields -----------------------------------------------------------------------


@pytest.mark.parametrize("end", sorted(TERMINAL_RUN))
def test_an_end_by_the_owner_clears_the_owner_and_keeps_the_fence(end: RunStatus) -> None:
    run = done(running(), run=end).snapshot
    assert (run.owner_id, run.fence) == (None, 1)


def test_a_callback_for_a_target_the_run_does_not_have_is_refused() -> None:
    run = running(callbacks=(CallbackTarget(name="hook"),))
    told = Effect(
        events=(Event(type="note.made"),),
        deliveries=(NewDelivery(id="d", target="hok", seq=0),),
    )
    with pytest.raises(StoreRejected, match="hok"):
        apply(run, by_owner(run, told), at=AT)


def test_a_callback_must_tell_of_an_event_of_its_update() -> None:
    run = replace(half_done(), callbacks=(CallbackTarget(name="hook"),))
    told = replace(effect(), deliveries=(NewDelivery(id="d", target="hook", seq=0),))
    with pytest.raises(StoreRejected, match="there is none"):
        apply(run, by_owner(run, told), at=after(1))


CLOSED = {
    # end: (step not reached, step cut short, host not reached, host cut short)
    "failed": ("skipped", "failed", "skipped", "unknown"),
    "canceled": ("canceled", "canceled", "canceled", "unknown"),
    "interrupted": ("interrupted", "interrupted", "interrupted", "interrupted"),
}


@pytest.mark.parametrize("end", CLOSED)
def test_an_end_closes_what_is_open_and_says_why(end: str) -> None:
    step_not_reached, step_cut, host_not_reached, host_cut = CLOSED[end]
    run = done(half_done(), run=RunStatus(end), at=after(9)).snapshot
    first, second = run.steps
    assert (first.status, second.status) == (step_cut, step_not_reached)
    assert [first.hosts[name].status for name in ("web1", "web2")] == ["success", host_cut]
    # What a step never got to is told by how the step ended.
    in_first = {"failed": "skipped"}.get(end, host_not_reached)
    assert first.hosts["web3"].status == in_first
    assert {host.status for host in second.hosts.values()} == {host_not_reached}
    assert {host.finished_at for host in second.hosts.values()} == {after(9)}
    assert first.hosts["web1"].finished_at == after(2)
    assert not {"pending", "running"} & set(statuses(run))


@pytest.mark.parametrize(
    "open_part",
    [start("web1"), StepChange(status=StepStatus.RUNNING)],
    ids=["a host", "the step"],
)
def test_no_success_while_something_runs(open_part: StepChange) -> None:
    run = done(running(), steps={0: open_part}).snapshot
    with pytest.raises(InvalidTransition, match="still running"):
        done(run, run=RunStatus.SUCCESS)


def test_canceling_lists_the_hosts_nobody_confirmed() -> None:
    run = done(half_done(), run=RunStatus.CANCELED, unconfirmed_hosts=("old1",)).snapshot
    assert run.unconfirmed_hosts == ("old1", "web2")
    assert done(half_done(), run=RunStatus.FAILED).snapshot.unconfirmed_hosts == ()


@pytest.mark.parametrize(
    ("end", "left"),
    [
        (StepStatus.SUCCESS, "skipped"),
        (StepStatus.FAILED, "skipped"),
        (StepStatus.SKIPPED, "skipped"),
        (StepStatus.CANCELED, "canceled"),
        (StepStatus.INTERRUPTED, "interrupted"),
    ],
)
def test_the_end_of_a_step_closes_its_hosts_that_never_started(end: StepStatus, left: str) -> None:
    run = done(half_done(), steps={0: finish(end, web2=OK)}, at=after(5)).snapshot
    host = run.steps[0].hosts["web3"]
    assert (host.status, host.started_at, host.finished_at) == (left, None, after(5))
    assert run.steps[1].status == StepStatus.PENDING


# -- counts -------------------------------------------------------------------------------------


def test_progress_forgets_earlier_takeovers() -> None:
    run = replace(half_done(), takeovers=3, takeovers_without_progress=3)
    still = done(run, steps={0: finish(None, web2=HostStatus.UNKNOWN)}).snapshot
    assert (still.takeovers, still.takeovers_without_progress) == (3, 3)
    moved = done(run, steps={0: finish(None, web2=OK)}).snapshot
    assert (moved.takeovers, moved.takeovers_without_progress) == (3, 0)


# -- what is open cannot end well -----------------------------------------------------------------
def test_a_step_cannot_end_well_while_a_host_runs() -> None:
    with pytest.raises(InvalidTransition):
        done(half_done(), steps={0: StepChange(status=StepStatus.SUCCESS)})


ONE_RUNNING_ONE_PENDING = {0: ItemChange(status=HostStatus.RUNNING), 1: ItemChange()}


def test_a_host_cannot_end_well_while_an_item_runs() -> None:
    told = HostChange(status=OK, items=ONE_RUNNING_ONE_PENDING)
    with pytest.raises(InvalidTransition, match="item 0 is still running"):
        done(half_done(), steps={0: StepChange(hosts={"web2": told})})


@pytest.mark.parametrize("host", [None, HostStatus.UNKNOWN, HostStatus.UNREACHABLE])
def test_no_item_is_open_in_an_ended_run(host: HostStatus | None) -> None:
    told = HostChange(items=ONE_RUNNING_ONE_PENDING)
    run = done(half_done(), steps={0: StepChange(hosts={"web2": told})}).snapshot
    if host is not None:
        change = StepChange(hosts={"web2": HostChange(status=host)})
        run = done(run, steps={0: change}).snapshot
    ended = done(run, run=RunStatus.FAILED).snapshot
    open_items: list[ItemState] = [
        item
        for item in ended.steps[0].hosts["web2"].items
        if item.status in (HostStatus.PENDING, HostStatus.RUNNING)
    ]
    assert open_items == []
