"""What a step or handler does once nothing of it is left unsaid."""

from __future__ import annotations

from tenure.runtime.recipe import prepare
from tenure.workflow.plan import make_plan
from tenure.workflow.spec import Defaults
from tests.runtime.playing import Idle, handler, step, workflow


def test_defaults_fill_what_a_step_does_not_say() -> None:
    played = workflow(
        step("one"),
        step("two", timeout=5.0, concurrency=3),
        defaults=Defaults(timeout=60.0, concurrency=20),
        handlers=[handler("h")],
    )
    prepared = prepare(make_plan(played), {"idle": Idle()})
    one, two = prepared.recipes
    assert (one.timeout, one.concurrency) == (60.0, 20)
    assert (two.timeout, two.concurrency) == (5.0, 3)
    assert prepared.handlers["h"].timeout == 60.0
    (plain,) = prepare(make_plan(workflow(step("one"))), {"idle": Idle()}).recipes
    assert (plain.timeout, plain.concurrency) == (None, 50)
