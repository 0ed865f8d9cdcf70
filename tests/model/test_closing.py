"""What an end does to the rest: nothing stays open, and everything is counted."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenure.model.errors import InvalidTransition
from tenure.model.snapshot import ItemState
from tenure.model.status import HostStatus, RunStatus, StepStatus
from tenure.model.update import HostChange, ItemChange, StepChange
from tests.model.samples import OK, after, done, finish, half_done, running, start, statuses

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


def test_started_at_tells_an_interrupted_host_that_had_begun_from_one_that_had_not() -> None:
    hosts = done(half_done(), run=RunStatus.INTERRUPTED).snapshot.steps[0].hosts
    assert hosts["web2"].status == hosts["web3"].status == HostStatus.INTERRUPTED
    assert hosts["web2"].started_at is not None
    assert hosts["web3"].started_at is None


@pytest.mark.parametrize(
    "open_part",
    [start("web1"), StepChange(status=StepStatus.RUNNING)],
    ids=["a host", "the step"],
)
def test_no_success_while_something_runs(open_part: StepChange) -> None:
    run = done(running(), steps={0: open_part}).snapshot
    with pytest.raises(InvalidTransition, match="still running"):
        done(run, run=RunStatus.SUCCESS)


def test_success_skips_what_was_not_reached() -> None:
    run = done(running(), run=RunStatus.SUCCESS).snapshot
    assert set(statuses(run)) == {"skipped"}


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


def test_running_items_of_a_host_cut_short_are_cut_with_it() -> None:
    item = HostChange(items={0: ItemChange(status=HostStatus.RUNNING)})
    run = done(half_done(), steps={0: StepChange(hosts={"web2": item})}).snapshot
    ended = done(run, run=RunStatus.CANCELED, at=after(9)).snapshot
    (cut,) = ended.steps[0].hosts["web2"].items
    assert (cut.status, cut.finished_at) == (HostStatus.UNKNOWN, after(9))


# -- counts -------------------------------------------------------------------------------------


def test_counts_follow_what_was_reached() -> None:
    run = half_done()
    assert (run.counts.steps_total, run.counts.hosts_total) == (2, 6)
    assert run.counts.steps == {StepStatus.RUNNING: 1}
    assert run.counts.hosts == {HostStatus.RUNNING: 1, HostStatus.SUCCESS: 1}
    run = done(run, steps={0: finish(StepStatus.SUCCESS, web2=OK)}).snapshot
    assert run.counts.steps == {StepStatus.SUCCESS: 1}
    assert run.counts.hosts == {HostStatus.SUCCESS: 2}


def test_counts_of_an_end_hold_what_was_cut_short_but_not_what_was_never_reached() -> None:
    counts = done(half_done(), run=RunStatus.CANCELED).snapshot.counts
    assert counts.steps == {StepStatus.CANCELED: 1}
    assert counts.hosts == {HostStatus.SUCCESS: 1, HostStatus.UNKNOWN: 1}
    assert (counts.steps_total, counts.hosts_total) == (2, 6)


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


@pytest.mark.parametrize("end", ["failed", "interrupted"])
def test_a_bad_end_has_an_error(end: str) -> None:
    assert done(running(), run=RunStatus(end)).snapshot.error is not None
