"""Chains of retries of random workflows with random results, against a ledger that only counts.

The ledger looks at what is started and how it ends, run after run. It knows no past, no sets of
hosts left, no continuation: what these must say follows from its sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenure
from tenure.model.snapshot import StepState
from tenure.model.status import HostStatus, StepKind, StepStatus
from tenure.runtime.executor import Outcome
from tenure.runtime.lineage import Continuation, StepPast, is_empty, past_of
from tenure.runtime.unfolding import Start
from tenure.workflow.plan import make_plan
from tests.runtime.playing import CHANGED, FAILED, OK, UNCHANGED, UNREACHABLE, Play, handler, step
from tests.runtime.playing import workflow as made
from tests.runtime.test_unfolding_random import HOSTS, OUTCOMES, workflows

Due = tuple[int, str, str]
"""Step, handler, host."""
RESULTS = OUTCOMES | st.sampled_from([CHANGED, UNCHANGED])
WELL = (HostStatus.SUCCESS, HostStatus.SKIPPED)
BAD = (HostStatus.FAILED, HostStatus.UNREACHABLE)


class Ledger:
    def __init__(self, played: tenure.Workflow) -> None:
        self.steps = played.steps
        self.succeeded: dict[tuple[int, str], set[str]] = {}
        """Hosts of steps, with the names they exported."""
        self.due: Counter[Due] = Counter()
        self.failed: dict[tuple[int, str], str] = {}
        """Hosts of rolling steps whose last word was a failure."""

    def ended(self, start: Start, outcome: Outcome) -> None:
        course, host, _ = start
        if outcome.status is not HostStatus.SUCCESS:
            return
        if course.parent is not None:
            self.due[course.parent.index, course.recipe.name, host] -= 1
        elif outcome.changed is not False:
            for name in set(self.steps[course.index].notify):
                self.due[course.index, name, host] += 1

    def close(self, record: tenure.RunSnapshot) -> None:
        handlers = [each for each in record.steps if each.kind is StepKind.HANDLER]
        for each in handlers:
            for host, at in each.hosts.items():
                unwanted = at.status is HostStatus.SKIPPED
                if unwanted and each.status in (StepStatus.SUCCESS, StepStatus.SKIPPED):
                    assert each.notified_by is not None
                    self.due[each.notified_by, each.name, host] -= 1
        for index, planned in enumerate(self.steps):
            state = record.steps[index]
            mine = [each for each in handlers if each.notified_by == index]
            for host, at in state.hosts.items():
                if at.status is HostStatus.SUCCESS:
                    self.succeeded[index, host] = set(at.vars)
                    self.failed.pop((index, host), None)
                elif at.status in BAD and planned.rolling is not None:
                    self.failed[index, host] = at.status
            if _failed_with_nobody_failing(state, mine) and not self._exported(index, planned):
                self._strike_out(index)
        self.due = Counter(dict.fromkeys(self.owed(), 1))  # one run settles all items of a loop

    def _exported(self, index: int, planned: tenure.Step) -> bool:
        said = [names for (step, _), names in self.succeeded.items() if step == index]
        return set(planned.expect_vars) <= set().union(*said)

    def _strike_out(self, index: int) -> None:
        self.succeeded = {key: said for key, said in self.succeeded.items() if key[0] != index}
        self.failed = {key: how for key, how in self.failed.items() if key[0] != index}
        for key in [key for key in self.due if key[0] == index]:
            del self.due[key]

    def left(self, index: int, hosts: Iterable[str]) -> set[str]:
        return {host for host in hosts if (index, host) not in self.succeeded}

    def owed(self) -> set[Due]:
        return {key for key, count in self.due.items() if count > 0}


def _failed_with_nobody_failing(state: StepState, handlers: list[StepState]) -> bool:
    hosts = [host for each in (state, *handlers) for host in each.hosts.values()]
    began = any(host.started_at for host in state.hosts.values()) or bool(handlers)
    return state.status is StepStatus.FAILED and began and all(h.status in WELL for h in hosts)


class Chained(Play):
    def __init__(
        self, played: tenure.Workflow, ledger: Ledger, continues: Continuation | None = None
    ) -> None:
        self.ledger = ledger
        self.began: set[tuple[int, str]] = set()
        super().__init__(played, continues, mode="x")

    def _known_outcome(self, start: Start) -> Any:
        course, host, _ = start
        if course.parent is None:
            place = (course.index, host)
            assert place not in self.ledger.succeeded, f"{place} had come through, and runs again"
            self.began.add(place)
        return super()._known_outcome(start)

    def turn(self, results: Iterable[tuple[str, Outcome]]) -> Play:
        results = list(results)
        for label, outcome in results:
            self.ledger.ended(self.running[label], outcome)
        return super().turn(results)


def play_on(play: Play, data: st.DataObject, outcomes: st.SearchStrategy[Outcome]) -> None:
    stop_after = data.draw(st.none() | st.integers(0, 6), label="cancel after")
    turns = 0
    while play.status is None:
        if turns == stop_after:
            play.cancel()
            return
        ending = data.draw(
            st.lists(st.sampled_from(sorted(play.running)), min_size=1, unique=True), label="end"
        )
        play.turn([(label, data.draw(outcomes, label=label)) for label in ending])
        turns += 1


def check_past(past: dict[int, StepPast], ledger: Ledger) -> None:
    """Nothing that failed is left out; nothing that came through is in."""
    done = {(index, host) for index, each in past.items() for host in each.done}
    assert done == ledger.succeeded.keys()
    failed = {
        (index, host): how for index, each in past.items() for host, how in each.failed.items()
    }
    assert failed == ledger.failed
    owed = {
        (index, name, host)
        for index, each in past.items()
        for name, hosts in each.owed.items()
        for host in hosts
    }
    assert owed == ledger.owed()


@pytest.mark.slow
@settings(max_examples=250)
@given(workflows(), st.data())
def test_a_chain_of_retries_does_what_is_left_and_nothing_twice(
    played: tenure.Workflow, data: st.DataObject
) -> None:
    plan, ledger = make_plan(played), Ledger(played)
    continues = Continuation()
    play = Chained(played, ledger)
    for _ in range(4):
        play_on(play, data, RESULTS)
        ledger.close(play.record)
        past = past_of(plan, play.record, continues.past)
        check_past(past, ledger)
        only = data.draw(st.none() | st.lists(st.sampled_from(HOSTS), unique=True), label="only")
        continues = Continuation(past=past, hosts=None if only is None else tuple(only))
        if is_empty(plan, continues):
            assert is_empty(plan, Continuation(past=past)) or only is not None
            continues = Continuation(past=past)
            if is_empty(plan, continues):
                assert all(not ledger.left(each.index, each.hosts) for each in plan.steps)
                assert not ledger.owed()
                return
        play = Chained(played, ledger, continues)
        for planned in plan.steps:
            wanted = ledger.left(planned.index, planned.hosts)
            if continues.hosts is not None:
                wanted &= set(continues.hosts)
            assert set(play.record.steps[planned.index].hosts) == wanted


@st.composite
def tame(draw: st.DrawFn) -> tenure.Workflow:
    """Nothing in it fails by itself."""
    steps = [
        step(
            f"s{index}",
            targets=draw(st.sampled_from([[], ["a"], ["b", "c"]])),
            notify=draw(st.lists(st.sampled_from(["h0", "h1"]), unique=True)),
            continue_on_error=draw(st.booleans()),
            loop=draw(st.sampled_from([None, None, [1, 2]])),
        )
        for index in range(draw(st.integers(1, 4)))
    ]
    return made(*steps, hosts=("a", "b", "c"), handlers=(handler("h0"), handler("h1")))


@pytest.mark.slow
@settings(max_examples=150)
@given(tame(), st.data())
def test_once_nothing_fails_any_more_one_retry_finishes_it_all(
    played: tenure.Workflow, data: st.DataObject
) -> None:
    plan, ledger = make_plan(played), Ledger(played)
    past: dict[int, StepPast] = {}
    for _ in range(data.draw(st.integers(1, 3))):
        play = Chained(played, ledger, Continuation(past=past))
        play_on(play, data, st.sampled_from([OK, CHANGED, UNCHANGED, FAILED, UNREACHABLE]))
        ledger.close(play.record)
        past = past_of(plan, play.record, past)
    last = Chained(played, ledger, Continuation(past=past))
    while last.status is None:
        last.end_all(OK)
    ledger.close(last.record)
    assert last.status == "success"
    assert is_empty(plan, Continuation(past=past_of(plan, last.record, past)))
    assert ledger.succeeded.keys() == {
        (each.index, host) for each in plan.steps for host in each.hosts
    }
    assert not ledger.owed()
