"""Chains of retries of random workflows with random results, against a ledger that only counts.

The ledger looks at what is started and how it ends, run after run, and at what each retry is asked
for. It knows no past, no sets of hosts left, no continuation: what these must say follows from its
sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenure
from tenure.model.errors import NotRunnable
from tenure.model.snapshot import HostState, StepState
from tenure.model.status import ENDED_STEP, HostStatus, StepKind, StepStatus
from tenure.runtime.executor import Outcome
from tenure.runtime.recipe import Definition
from tenure.runtime.retry import RetryOptions, definition_of_retry
from tenure.runtime.retry_history import Continuation, StepPast, is_empty, past_of
from tenure.runtime.run import StoredRun
from tenure.runtime.schedule import Start
from tenure.workflow.plan import Plan, make_plan
from tests.runtime.playing import CHANGED, FAILED, OK, UNCHANGED, UNREACHABLE, Play, handler, step
from tests.runtime.playing import workflow as made
from tests.runtime.test_schedule_random import HOSTS, OUTCOMES, workflows

Place = tuple[int, str]
"""Step, host."""
Due = tuple[int, str, str]
"""Step, handler, host."""
UNKNOWN = Outcome(status=HostStatus.UNKNOWN, message="nobody saw it end", kind="still_running")
SECRET = Outcome(status=HostStatus.SUCCESS, vars={"A": 1}, secret_vars=frozenset({"A"}))
RESULTS = OUTCOMES | st.sampled_from([CHANGED, UNCHANGED, UNKNOWN, SECRET])
WELL = (HostStatus.SUCCESS, HostStatus.SKIPPED)
BAD = (HostStatus.FAILED, HostStatus.UNREACHABLE, HostStatus.UNKNOWN)


class Ledger:
    def __init__(self, played: tenure.Workflow) -> None:
        self.steps = played.steps
        self.succeeded: dict[Place, set[str]] = {}
        """Hosts of steps, with the names they exported."""
        self.secret: dict[Place, set[str]] = {}
        """Names they exported, when they last came through, that nobody keeps."""
        self.due: Counter[Due] = Counter()
        self._notified: set[Due] = set()
        """In this run."""
        self.failed: dict[Place, str] = {}
        """Hosts of rolling steps whose last word was a failure."""
        self.troubled: set[Place] = set()
        """Where something went wrong that is not made good."""

    def ended(self, start: Start, outcome: Outcome) -> None:
        progress, host, _ = start
        if outcome.status is not HostStatus.SUCCESS:
            return
        if progress.parent is not None:
            self.due[progress.parent.index, progress.recipe.name, host] -= 1
        elif outcome.changed is not False:
            for name in set(self.steps[progress.index].notify):
                self._notify((progress.index, name, host))

    def _notify(self, key: Due) -> None:
        """The first time in a run is also for what was owed before."""
        self.due[key] = self.due[key] + 1 if key in self._notified else 1
        self._notified.add(key)

    def close(self, record: tenure.RunSnapshot) -> None:
        handlers = [each for each in record.steps if each.kind is StepKind.HANDLER]
        for each in handlers:
            for host, at in each.hosts.items():
                unwanted = at.status is HostStatus.SKIPPED
                if unwanted and each.status in (StepStatus.SUCCESS, StepStatus.SKIPPED):
                    assert each.notified_by is not None
                    self.due[each.notified_by, each.name, host] -= 1
        for index, planned in enumerate(self.steps):
            mine = [each for each in handlers if each.notified_by == index]
            self._close_step(planned, record.steps[index], mine)
        self.due = Counter(dict.fromkeys(self.owed(), 1))  # one run settles all items of a loop
        self._notified.clear()
        owing = {(index, host) for index, _, host in self.due}
        self.troubled -= self.succeeded.keys() - owing

    def _close_step(
        self, planned: tenure.Step, state: StepState, handlers: list[StepState]
    ) -> None:
        index = state.index
        for host, at in state.hosts.items():
            place = (index, host)
            if at.status is HostStatus.SUCCESS:
                self.succeeded[place] = {*at.vars, *at.withheld}
                self.secret.pop(place, None)
                if at.withheld:
                    self.secret[place] = set(at.withheld)
                self.failed.pop(place, None)
            elif at.status in BAD and planned.rolling is not None:
                self.failed[place] = at.status
        hosts = [item for each in (state, *handlers) for item in each.hosts.items()]
        bad = {(index, host) for host, at in hosts if _went_wrong(at)}
        if state.status is StepStatus.FAILED and not bad:
            bad = {(index, host) for host in state.hosts}
            began = any(at.started_at for at in state.hosts.values()) or bool(handlers)
            if began and not self._exported(index) >= set(planned.expect_vars):
                undone = [place for place in self.succeeded if place[0] == index]
                bad.update(undone)
                self.again(undone)
        self.troubled |= bad

    def _exported(self, index: int) -> set[str]:
        said = (names for (step, _), names in self.succeeded.items() if step == index)
        return set[str]().union(*said)

    def again(self, places: Iterable[Place]) -> None:
        """These are to do once more what they have done."""
        for place in places:
            self.succeeded.pop(place, None)

    def left(self, index: int, hosts: Iterable[str]) -> set[str]:
        return {host for host in hosts if (index, host) not in self.succeeded}

    def owed(self) -> set[Due]:
        return {key for key, count in self.due.items() if count > 0}


def _went_wrong(at: HostState) -> bool:
    return at.status in BAD or (at.status not in WELL and at.started_at is not None)


class Chained(Play):
    """A run of the chain: what begins must be left to do, and find what it may need."""

    def __init__(
        self, played: tenure.Workflow, ledger: Ledger, continues: Continuation | None = None
    ) -> None:
        self.ledger = ledger
        self.began: set[Place] = set()
        self.handled: set[Place] = set()
        super().__init__(played, continues, mode="x")

    def _known_outcome(self, start: Start) -> Any:
        progress, host, _ = start
        if progress.parent is None:
            self._check_task((progress.index, host))
        else:
            self._check_handler((progress.parent.index, host))
        for index, other in self.ledger.secret:
            state = self.record.steps[index]
            gone = state.status in ENDED_STEP and other not in state.hosts
            assert not gone, f"{start} goes on without what step {index} exported on {other}"
        return super()._known_outcome(start)

    def _check_task(self, place: Place) -> None:
        assert place not in self.ledger.succeeded, f"{place} had come through, and runs again"
        assert place in self.began or place not in self.handled, f"{place} is late for its handler"
        self.began.add(place)

    def _check_handler(self, place: Place) -> None:
        index, host = place
        known = host in self.record.steps[index].hosts or place not in self.ledger.secret
        assert known, f"a handler goes on without what step {index} exported on {host}"
        self.handled.add(place)

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
    withheld = {
        (index, host): set(names)
        for index, each in past.items()
        for host, names in each.withheld.items()
    }
    assert withheld == ledger.secret
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
    troubled = {(index, host) for index, each in past.items() for host in each.troubled}
    assert troubled == ledger.troubled


class Asked:
    """What one retry is to do, by the sentences of the manual."""

    def __init__(self, plan: Plan, ledger: Ledger, options: RetryOptions) -> None:
        hosts = set(options.limit or HOSTS)
        if options.only_failed:
            hosts &= {host for _, host in ledger.troubled}
        again = {int(index) for index in options.again}
        chosen = set(range(len(plan.steps)))
        if options.from_step is not None:
            first = int(options.from_step)
            again |= {index for index in chosen if _waits_for(plan, index, first)}
            chosen = again
        self.again = {(index, host) for index in again for host in hosts}
        self.tasks = {
            (step.index, host)
            for step in plan.steps
            for host in hosts.intersection(step.hosts)
            if step.index in chosen
            and (step.index in again or (step.index, host) not in ledger.succeeded)
        }
        self.owed = {key for key in ledger.owed() if key[0] in chosen and key[2] in hosts}


def _waits_for(plan: Plan, later: int, first: int) -> bool:
    needs = plan.steps[later].needs
    return later == first or any(_waits_for(plan, each, first) for each in needs)


@st.composite
def retry_options(draw: st.DrawFn, steps: int) -> RetryOptions:
    names = st.sampled_from([str(index) for index in range(steps)])
    return RetryOptions(
        limit=draw(st.just([]) | st.lists(st.sampled_from(HOSTS), unique=True)),
        only_failed=draw(st.sampled_from([False, False, True])),
        from_step=draw(st.none() | st.none() | names),
        again=draw(st.just([]) | st.lists(names, max_size=2, unique=True)),
    )


@pytest.mark.slow
@settings(max_examples=250)
@given(workflows(), st.data())
def test_a_chain_of_retries_does_what_is_left_and_nothing_twice(
    played: tenure.Workflow, data: st.DataObject
) -> None:
    plan, ledger = make_plan(played), Ledger(played)
    play, continues = Chained(played, ledger), Continuation()
    for _ in range(4):
        play_on(play, data, RESULTS)
        ledger.close(play.record)
        check_past(past_of(plan, play.record, continues.past), ledger)
        stored = StoredRun(play.record, Definition(workflow="", continues=continues))
        options = data.draw(retry_options(len(plan.steps)), label="options")
        asked = Asked(plan, ledger, options)
        found = continuation(stored, played, options)
        if isinstance(found, str) and "with a secret in it" in found:
            assert ledger.secret.keys() - asked.tasks
            options = RetryOptions(again=[str(index) for index, _ in ledger.secret])
            asked = Asked(plan, ledger, options)
            found = continuation(stored, played, options)
        if isinstance(found, str):
            assert "leaves nothing" in found
            assert not asked.tasks
            assert not asked.owed
            return
        continues = found
        ledger.again(asked.again)
        play = Chained(played, ledger, continues)
        begun = play.record.steps[: len(plan.steps)]
        assert {(each.index, host) for each in begun for host in each.hosts} == asked.tasks
        owed = {
            (each.index, name, host)
            for each in plan.steps
            for name, hosts in continues.owed(each.index).items()
            for host in hosts
        }
        assert owed == asked.owed


def continuation(
    stored: StoredRun, played: tenure.Workflow, options: RetryOptions
) -> Continuation | str:
    """Or why there is none."""
    try:
        continues = definition_of_retry(stored, played, options).continues
    except NotRunnable as refused:
        return str(refused)
    assert continues is not None
    return continues


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
