"""Which steps may begin: against the plain definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenure.runtime.recipe import ReadySteps, order_of
from tenure.workflow.plan import PlannedStep
from tests.runtime.playing import step


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """Per step those it needs; they may stand above or below it in the file, without a circle."""
    size = draw(st.integers(1, 8))
    place = draw(st.permutations(range(size)))
    return [
        tuple(
            sorted(
                other
                for other in range(size)
                if place[other] < place[index] and draw(st.booleans())
            )
        )
        for index in range(size)
    ]


@given(graphs(), st.data())
def test_a_step_may_begin_when_all_it_needs_have_ended_and_only_once(
    needs: list[tuple[int, ...]], data: st.DataObject
) -> None:
    steps = [
        PlannedStep(index=index, step=step(f"s{index}"), hosts=("a",), needs=needed)
        for index, needed in enumerate(needs)
    ]
    schedule = ReadySteps(order_of(steps))
    begun: set[int] = set()
    ended: set[int] = set()
    while len(ended) < len(needs):
        ready = schedule.take_ready()
        assert ready == [
            index
            for index, needed in enumerate(needs)
            if index not in begun and ended.issuperset(needed)
        ]
        begun.update(ready)
        assert schedule.left == len(needs) - len(begun)
        index = data.draw(st.sampled_from(sorted(begun - ended)))
        schedule.ended(index)
        ended.add(index)
    assert (schedule.take_ready(), schedule.left) == ([], 0)
