"""Workflows built in Python: checked like files, and as good as one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tenure.model.errors import InvalidWorkflow
from tenure.model.status import Recovery
from tenure.workflow.parse import check_workflow
from tenure.workflow.schema import workflow_text
from tenure.workflow.spec import Defaults, OnTakeover, Retries, Rolling, Step, Workflow
from tests.workflow.samples import CATALOGUE, parse, step, workflow
from tests.workflow.whole_files import MEANT, OLDER


def test_python_may_say_it_as_the_file_does() -> None:
    built = Workflow(
        name="demo",
        steps=[
            Step(
                name="one",
                action="cmd.run",
                args={"cmd": "true"},
                timeout="1h30m",
                retries=3,
                when=True,
                on_takeover="fail",
                needs=[],
            )
        ],
        recovery="resume",
        defaults=Defaults(timeout=30),
    )
    one = built.steps[0]
    assert (one.timeout, one.retries, one.when) == (5400.0, Retries(max=3), "true")
    assert one.on_takeover is OnTakeover.FAIL
    assert built.recovery is Recovery.RESUME
    assert isinstance(built.steps, tuple)
    assert isinstance(built.defaults.timeout, float)
    assert check_workflow(built, CATALOGUE).workflow == built


def test_a_bad_duration_is_refused_where_it_is_written() -> None:
    with pytest.raises(InvalidWorkflow, match="timeout: '30' has no unit: write 30s"):
        Defaults(timeout="30")


@pytest.mark.parametrize("built", [MEANT, workflow(), parse(OLDER[0]), parse(OLDER[1])])
def test_a_checked_workflow_comes_back_as_it_was(built: Workflow) -> None:
    assert check_workflow(built, CATALOGUE).workflow == built
    assert parse(workflow_text(built)) == built
    assert msgspec.json.decode(msgspec.json.encode(built), type=Workflow) == built


def built_mistakes(built: Workflow) -> list[str]:
    with pytest.raises(InvalidWorkflow) as caught:
        check_workflow(built, CATALOGUE)
    assert all(mistake.line is None for mistake in caught.value.mistakes)
    return [str(mistake) for mistake in caught.value.mistakes]


def test_mistakes_of_a_built_workflow_have_paths() -> None:
    built = workflow(
        step(timeout=-5.0, targets=["wbe"]),
        step("two", action="cmd.rn", retries=Retries(max=-1), rolling=Rolling(batch="x")),
        priority=1000,
        recovery="sometimes",
    )
    assert built_mistakes(built) == [
        "workflow: priority: must be between -100 and 100, not 1000",
        "workflow: recovery: must be one of interrupt, resume, not 'sometimes'",
        "workflow: steps[0].timeout: '-5s' is negative; write it without the sign, like 30s, or "
        "leave it out",
        "workflow: steps[1].retries.max: must be between 0 and 1000, not -1",
        "workflow: steps[1].rolling.batch: must be a number of hosts or a share like 25%, not 'x'",
        "workflow: steps[0].targets[0]: no host or group named 'wbe'; did you mean 'web'?",
        "workflow: steps[1].action: no action named 'cmd.rn'; did you mean 'cmd.run'?",
    ]


CYCLE: dict[str, Any] = {}
CYCLE["self"] = CYCLE


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), "a datetime cannot be in a workflow"),
        (b"x", "a bytes cannot be in a workflow"),
        ({1, 2}, "a set cannot be in a workflow"),
        (float("nan"), "nan is not a finite number"),
        (2**70, "the number is too large; write it as text"),
        ("\ud800", "the text is no Unicode"),
        ({1: "x"}, "a key must be text, not 1"),
    ],
)
def test_a_value_no_file_can_hold_is_a_mistake(value: Any, said: str) -> None:
    built = workflow(vars={"v": value})
    assert built_mistakes(built) == [f"workflow: vars.v: {said}"]
    with pytest.raises(InvalidWorkflow):
        workflow_text(built)


def test_a_value_that_contains_itself_is_a_mistake() -> None:
    [said] = built_mistakes(workflow(vars=CYCLE))
    assert said.endswith("nested more than 60 deep")
