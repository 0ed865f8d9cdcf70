"""Random workflows, random results, in random order, and owners lost at random moments: what must
hold however a run unfolds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenure
from tenure.model.status import HostStatus, RunStatus, StepStatus
from tenure.model.update import Changes
from tenure.runtime.executor import Outcome
from tenure.runtime.resume import resume
from tenure.runtime.schedule import Schedule, Start, started_again
from tenure.workflow.plan import Exports
from tenure.workflow.spec import Rolling
from tests.runtime.playing import (
    FAILED,
    OK,
    SKIPPED,
    UNREACHABLE,
    Play,
    StrictDraft,
    exporting,
    handler,
    step,
    workflow,
)

OUTCOMES = st.sampled_from(
    [OK, OK, OK, exporting(A=1), exporting(A=2), SKIPPED, FAILED, UNREACHABLE]
)
HOSTS = ("a", "b", "c", "d")
HANDLERS = (handler("h0"), handler("h1", when="mode == 'x'"), handler("h2", when="A == 1"))


@st.composite
def steps(draw: st.DrawFn, index: int) -> tenure.Step:
    rest: dict[str, Any] = {}
    if draw(st.booleans()):
        rest["needs"] = draw(st.lists(st.sampled_from(range(index)), unique=True)) if index else []
        rest["needs"] = [f"s{number}" for number in rest["needs"]]
    if draw(st.booleans()):
        rest["loop"] = draw(st.sampled_from([[], [1], [1, 2], [1, 2, 3], "${{ A }}"]))
    conditions = ["mode == 'x'", "mode == 'y'", "A is defined", "A == 1", "nonsense"]
    if "loop" in rest:
        conditions += ["item != 1"]
    rest["when"] = draw(st.none() | st.none() | st.sampled_from(conditions))
    rest["targets"] = draw(st.sampled_from([[], ["a"], ["a", "b"], ["b", "c", "d"]]))
    rest["concurrency"] = draw(st.none() | st.integers(1, 3))
    rest["continue_on_error"] = draw(st.booleans())
    rest["must_vars"] = draw(st.sampled_from([[], [], [], ["A"]]))
    rest["expect_vars"] = draw(st.sampled_from([[], [], [], ["A"]]))
    rest["notify"] = draw(st.lists(st.sampled_from(["h0", "h1", "h2"]), max_size=3))
    if draw(st.booleans()):
        settings: dict[str, Any] = {
            "batch": draw(st.sampled_from([1, 2, "50%"])),
            "max_failures": draw(st.sampled_from([0, 1, "100%"])),
            "max_unreachable": draw(st.sampled_from([None, 1])),
        }
        rest["rolling"] = Rolling(**settings)
    return step(f"s{index}", **rest)


@st.composite
def workflows(draw: st.DrawFn) -> tenure.Workflow:
    count = draw(st.integers(1, 5))
    made = [draw(steps(index)) for index in range(count)]
    return workflow(*made, hosts=HOSTS, handlers=HANDLERS)


class Watched(Play):
    """A play that minds the rules while it is played."""

    def __init__(self, played: tenure.Workflow) -> None:
        self.seen: set[tuple[int, str, int | None]] = set()
        super().__init__(played, mode="x")

    def _known_outcome(self, start: Start) -> Any:
        """Asked for each start, once it is in the record."""
        progress, host, position = start
        place = (progress.index, host, position)
        assert place not in self.seen, f"{place} was started twice"
        self.seen.add(place)
        state = self.record.steps[progress.index]
        assert (state.status, state.hosts[host].status) == ("running", "running")
        if position is not None and progress.items is not None and progress.items[host]:
            assert state.hosts[host].items[position].status == "running"
        if progress.parent is None:
            for needed in self.unfolding._prepared.plan.steps[progress.index].needs:
                assert self.record.steps[needed].status in _ENDED
        return super()._known_outcome(start)

    def apply(self, changes: Any) -> None:
        super().apply(changes)
        self.check_concurrency()

    def check_concurrency(self) -> None:
        starts = [*self.running.values(), *self.unfolding.starts]
        for progress, count in Counter(start.progress for start in starts).items():
            assert count <= progress.recipe.concurrency


_ENDED = (StepStatus.SUCCESS, StepStatus.FAILED, StepStatus.SKIPPED)


@pytest.mark.slow
@settings(max_examples=200)
@given(workflows(), st.data())
def test_every_run_comes_to_a_truthful_end(played: tenure.Workflow, data: st.DataObject) -> None:
    play = Watched(played)
    stop_after = data.draw(st.none() | st.integers(0, 6), label="cancel after")
    turns = 0
    while play.status is None:
        if turns == stop_after:
            play.cancel()
            break
        assert play.running, "nothing runs, and yet it has not ended"
        ending = data.draw(
            st.lists(st.sampled_from(sorted(play.running)), min_size=1, unique=True), label="end"
        )
        play.turn([(label, data.draw(OUTCOMES, label=label)) for label in ending])
        turns += 1
    check_end(play)


def check_end(play: Play) -> None:
    record = play.record
    assert record.status is play.status
    assert not play.running
    assert record.unconfirmed_hosts == ()
    for each in record.steps:
        assert each.status not in (StepStatus.PENDING, StepStatus.RUNNING), each
        for host in each.hosts.values():
            assert host.status not in (HostStatus.PENDING, HostStatus.RUNNING, HostStatus.UNKNOWN)
            for item in host.items:
                assert item.status not in (HostStatus.PENDING, HostStatus.RUNNING)
    planned = {each.name: each for each in play.unfolding._prepared.plan.workflow.steps}
    unhandled = [
        each
        for each in record.steps
        if each.status is StepStatus.FAILED
        and each.name in planned
        and not planned[each.name].continue_on_error
    ]
    if record.status is RunStatus.FAILED:
        assert unhandled
        assert record.error is not None
        assert record.error.step in [each.name for each in unhandled]
    elif record.status is RunStatus.SUCCESS:
        assert not unhandled
        assert record.error is None


class Lossy(Play):
    """Its owner is lost right after each of the given versions of the record, and another goes on
    with nothing but that."""

    def __init__(self, played: tenure.Workflow, lost_after: frozenset[int] = frozenset()) -> None:
        self._lost_after = set(lost_after)
        self._variables: dict[str, Any] = {"mode": "x"}
        super().__init__(played, **self._variables)

    def apply(self, changes: Changes) -> None:
        super().apply(changes)
        self.lose_owner()

    def _go_on(self, changes: Changes) -> None:
        before = self.record.version
        self.lose_owner()
        super()._go_on(changes if self.record.version == before else Changes())

    def lose_owner(self) -> None:
        expected = {*self.running, *(self._label(start) for start in self.unfolding.starts)}
        more_follows = self.unfolding.next_turn_due
        while self._is_lost():
            prepared = self.unfolding._prepared
            self.exports = Exports(prepared.plan, self._variables)
            self.unfolding, self.running = Schedule(prepared, self.exports), {}
            missing, doubts = resume(self.unfolding, self.record)
            if missing != Changes():
                super().apply(missing)
            if self.record.version in self._lost_after:
                continue
            again = StrictDraft()
            for start, attempts, _ in doubts:
                started_again(start, attempts + 1, again)
            if again:
                super().apply(again.changes())
            self.unfolding.starts += [doubt.start for doubt in doubts]
            going_on = {self._label(start) for start in self.unfolding.starts}
            assert more_follows or going_on == expected, "others run now than before"

    def _is_lost(self) -> bool:
        lost = not self.record.ended and self.record.version in self._lost_after
        self._lost_after.discard(self.record.version)
        return lost


def played_through(play: Play, choices: list[tuple[int, Outcome]]) -> None:
    """Each choice ends one of the tasks that run, by its place in the order of their names."""
    turns = iter(choices)
    while play.status is None:
        place, outcome = next(turns, (0, Outcome(status=HostStatus.SUCCESS)))
        running = sorted(play.running)
        assert running, "nothing runs, and yet it has not ended"
        play.turn([(running[place % len(running)], outcome)])


def what_happened(play: Play) -> list[Any]:
    steps = play.record.steps
    return [play.status, play.record.counts, play.record.error] + [
        (step.name, step.status, step.message, step.notified_by, {
            name: (host.status, host.vars, [item.status for item in host.items])
            for name, host in step.hosts.items()
        })
        for step in steps
    ]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=300)
@given(
    workflows(),
    st.lists(st.tuples(st.integers(0, 7), OUTCOMES), max_size=20),
    st.frozensets(st.integers(1, 20), min_size=1, max_size=4),
)
def test_whoever_goes_on_ends_it_as_the_first_owner_would_have(
    played: tenure.Workflow, choices: list[tuple[int, Outcome]], lost_after: frozenset[int]
) -> None:
    undisturbed, lossy = Lossy(played), Lossy(played, lost_after)
    played_through(undisturbed, choices)
    played_through(lossy, choices)
    assert what_happened(lossy) == what_happened(undisturbed)
