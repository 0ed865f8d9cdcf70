"""What is left of an update when nothing may start."""

from __future__ import annotations

import pytest

from tenure.model.status import HostStatus, RunStatus, StepStatus
from tenure.model.update import Changes, HostChange, ItemChange, RunChange, StepChange
from tenure.runtime.writer import without_starts
from tenure.testing.factories import planned_steps

STARTS = HostChange(status=HostStatus.RUNNING, items={0: ItemChange(status=HostStatus.RUNNING)})
ENDS = HostChange(status=HostStatus.SUCCESS)
ITEM_STARTS, ITEM_ENDS = ItemChange(status=HostStatus.RUNNING), ItemChange(status=HostStatus.FAILED)
BEGINS = RunChange(status=RunStatus.RUNNING)
RUNS, DONE = StepStatus.RUNNING, StepStatus.SUCCESS


def step(status: StepStatus, **hosts: HostChange) -> StepChange:
    return StepChange(status=status, hosts=hosts)


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (
            Changes(steps={0: step(DONE, a=ENDS), 1: step(RUNS, a=STARTS)}),
            Changes(steps={0: step(DONE, a=ENDS)}),
        ),
        (
            Changes(steps={0: StepChange(hosts={"a": ENDS, "b": STARTS})}),
            Changes(steps={0: StepChange(hosts={"a": ENDS})}),
        ),
        (
            Changes(
                steps={0: StepChange(hosts={"a": HostChange(items={0: ITEM_ENDS, 1: ITEM_STARTS})})}
            ),
            Changes(steps={0: StepChange(hosts={"a": HostChange(items={0: ITEM_ENDS})})}),
        ),
        (
            Changes(steps={0: StepChange(hosts={"a": HostChange(items={1: ITEM_STARTS})})}),
            Changes(),
        ),
        (Changes(run=BEGINS, steps={0: step(RUNS, a=STARTS)}), Changes()),
        (
            Changes(run=BEGINS, steps={0: step(StepStatus.SKIPPED), 1: step(RUNS, a=STARTS)}),
            Changes(run=BEGINS, steps={0: step(StepStatus.SKIPPED)}),
        ),
    ],
    ids=["a step", "a host", "an item", "nothing else", "the run", "the run, and what is skipped"],
)
def test_what_ends_is_left(given: Changes, left: Changes) -> None:
    assert without_starts(given) == left


def test_a_step_that_is_added_is_there_and_has_not_begun() -> None:
    plan = planned_steps(3)[2]
    given = Changes(steps={2: StepChange(status=RUNS, hosts={"a": STARTS}, plan=plan)})
    assert without_starts(given) == Changes(steps={2: StepChange(plan=plan)})


@pytest.mark.parametrize(
    "given",
    [
        Changes(),
        Changes(steps={0: step(DONE, a=ENDS)}),
        Changes(steps={0: StepChange(hosts={"a": HostChange(attempts=2, message="again")})}),
        Changes(run=RunChange(status=RunStatus.FAILED)),
    ],
)
def test_where_nothing_starts_all_is_left_as_it_was(given: Changes) -> None:
    assert without_starts(given) is given
