"""Random workflows whose owners are lost at random moments: what goes on from the record ends as if
nobody had ever been lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenure
from tenure.model.status import HostStatus
from tenure.model.update import Changes
from tenure.runtime.executor import Outcome
from tenure.runtime.resume import resume
from tenure.runtime.schedule import Schedule, started_again
from tenure.workflow.plan import Exports
from tests.runtime.playing import Play, StrictDraft
from tests.runtime.test_unfolding_random import OUTCOMES, workflows


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
        more_follows = self.unfolding.impatient
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
            for start, attempts in doubts:
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
