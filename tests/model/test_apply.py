"""What an accepted update does: closing, counting, stamping, and never touching the old value."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.model.decide import apply
from tenure.model.errors import InvalidTransition, Refused, StoreRejected
from tenure.model.snapshot import (
    Annotation,
    CallbackTarget,
    ErrorInfo,
    HostState,
    RunSnapshot,
    StepState,
)
from tenure.model.status import TERMINAL_RUN, HostStatus, RunStatus, StepKind, StepStatus
from tenure.model.update import (
    CancelRequest,
    Effect,
    Event,
    HostChange,
    ItemChange,
    NewDelivery,
    StepChange,
    Update,
)
from tests.model.samples import (
    ALICE,
    AT,
    BAD,
    LIVE,
    OK,
    after,
    as_bytes,
    at_status,
    by_operator,
    by_owner,
    done,
    effect,
    finish,
    half_done,
    owned,
    queued,
    running,
    start,
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


def test_the_effect_is_handed_back_to_be_journaled() -> None:
    run = running()
    told = Effect(events=(Event(type="note.made"),))
    assert apply(run, by_owner(run, told), at=AT).effect == told


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


def test_a_run_canceled_before_its_start_never_started() -> None:
    run = done(owned(), run=RunStatus.CANCELED, at=after(1)).snapshot
    assert (run.started_at, run.finished_at) == (None, after(1))


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


def test_one_bad_change_refuses_the_whole_update() -> None:
    run = half_done()
    with pytest.raises(InvalidTransition):
        done(run, message="new", steps={0: finish(None, web2=OK), 1: finish(None, web1=OK)})


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


def test_results_of_hosts_and_items_are_kept() -> None:
    told = HostChange(
        status=OK,
        message="fine",
        exit_code=0,
        attempts=2,
        changed=True,
        stdout="out",
        stderr="err",
        truncated=True,
        vars={"A": 1},
        items={0: ItemChange(status=HostStatus.UNREACHABLE), 1: ItemChange(attempts=1)},
    )
    host = done(half_done(), steps={0: StepChange(hosts={"web2": told})}).snapshot
    kept = host.steps[0].hosts["web2"]
    names = ("message", "exit_code", "attempts", "changed", "stdout", "stderr", "truncated", "vars")
    assert {name: getattr(kept, name) for name in names} == {
        name: getattr(told, name) for name in names
    }
    assert [item.status for item in kept.items] == [HostStatus.UNREACHABLE, HostStatus.SKIPPED]


def test_what_an_update_does_not_name_stays() -> None:
    run = done(half_done(), steps={0: StepChange(hosts={"web2": HostChange(stdout="a")})}).snapshot
    run = done(run, steps={0: StepChange(hosts={"web2": HostChange(stderr="b")})}).snapshot
    host = run.steps[0].hosts["web2"]
    assert (host.stdout, host.stderr, host.status) == ("a", "b", HostStatus.RUNNING)


def test_only_the_owner_changes_steps_of_an_owned_run() -> None:
    run = half_done()
    meddling = effect(steps={0: finish(None, web2=OK)})
    with pytest.raises(Refused):
        apply(run, by_operator(run, meddling, base_version=None), at=AT, circumstances=LIVE)


@pytest.mark.parametrize("index", [-1, 7])
def test_an_added_step_follows_the_last_one(index: int) -> None:
    change = StepChange(plan=StepState(index=index, name="reload"), status=StepStatus.RUNNING)
    with pytest.raises(Refused):
        done(running(), steps={index: change})


# -- the run's own fields -----------------------------------------------------------------------


def test_scalars_can_be_set_and_cleared() -> None:
    trouble = ErrorInfo(kind="exit", message="code 1", failed_hosts=("web1",), failed_count=1)
    run = done(running(), message="m", last_error=trouble).snapshot
    assert (run.message, run.last_error) == ("m", trouble)
    run = done(run, message=None, last_error=None).snapshot
    assert (run.message, run.last_error) == (None, None)


def test_release_gives_the_run_back_with_its_status() -> None:
    run = done(running(), message="drained", release=True).snapshot
    assert (run.owner_id, run.status, run.fence) == (None, RunStatus.RUNNING, 1)


@pytest.mark.parametrize("end", sorted(TERMINAL_RUN))
def test_an_end_by_the_owner_clears_the_owner_and_keeps_the_fence(end: RunStatus) -> None:
    run = done(running(), run=end).snapshot
    assert (run.owner_id, run.fence) == (None, 1)


def test_an_operators_status_change_raises_the_fence_other_changes_do_not() -> None:
    run = queued()
    ended = apply(run, by_operator(run, effect(run=RunStatus.CANCELED)), at=AT).snapshot
    assert ended.fence == run.fence + 1
    noted = apply(run, by_operator(run, effect(cancel=CancelRequest())), at=AT).snapshot
    assert noted.fence == run.fence


def any_base(run: RunSnapshot, **scalars: Any) -> Update:
    return by_operator(run, effect(**scalars), base_version=None)


def test_a_cancel_request_is_kept_once() -> None:
    run = running()
    asked = apply(
        run, any_base(run, cancel=CancelRequest(reason="stop")), at=after(1), circumstances=LIVE
    ).snapshot
    assert (asked.cancel_requested_at, asked.cancel_reason) == (after(1), "stop")
    assert (asked.status, asked.owner_id, asked.fence) == (RunStatus.RUNNING, ALICE, 1)
    again = apply(asked, any_base(asked, cancel=CancelRequest(reason="now!")), at=after(2))
    assert (again.effect, again.snapshot) == (None, asked)


def test_a_cancel_request_for_an_ended_run_changes_nothing() -> None:
    run = at_status("success")
    answer = apply(run, any_base(run, cancel=CancelRequest()), at=after(1))
    assert (answer.effect, answer.version, answer.snapshot) == (None, run.version, run)


@pytest.mark.parametrize("status", list(RunStatus))
def test_annotations_are_welcome_at_any_time_once_each(status: RunStatus) -> None:
    run = at_status(status)
    note = Annotation(id="n1", data={"ticket": 7}, by="ann")
    noted = apply(run, any_base(run, annotate=(note,)), at=after(1)).snapshot
    assert noted.annotations == (replace(note, at=after(1)),)
    assert (noted.status, noted.version, noted.finished_at) == (
        run.status,
        run.version + 1,
        run.finished_at,
    )
    assert apply(noted, any_base(noted, annotate=(note,)), at=after(2)).effect is None
    both = apply(noted, any_base(noted, annotate=(note, replace(note, id="n2"))), at=after(3))
    assert [n.id for n in both.snapshot.annotations] == ["n1", "n2"]


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
