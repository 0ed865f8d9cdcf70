"""A program of a user, for the type checker alone: ``test_typing`` has it checked, nobody runs it.

A line that must be refused says so with an ignore that would be in the way if it were not.
"""

from __future__ import annotations

from typing import assert_type

import tenure
from tenure import Defaults, OnTakeover, PlanMode, PlanSettings, Rolling, Verify

step = tenure.Step(
    name="restart",
    action="cmd.run",
    args={"cmd": "systemctl restart app"},
    targets=["web"],
    timeout="30s",
    retries=3,
    when=True,
    needs=[],
    loop=["a", "b"],
    rolling=Rolling(batch="25%", max_failures=1),
    verify=Verify(cmd="systemctl is-active app", timeout="5s"),
    on_takeover="verify",
)
handler = tenure.Handler(
    name="reload",
    action="cmd.run",
    timeout=5,
    retries=tenure.Retries(max=2, delay="5s", max_delay=60),
)
workflow = tenure.Workflow(
    name="deploy",
    steps=[step],
    handlers=[handler],
    timeout="2h",
    recovery="resume",
    defaults=Defaults(timeout="10m", on_takeover="ask"),
    plan=PlanSettings(mode="manual-approve", approval_timeout="1h"),
    inventory=tenure.Inventory(hosts={"web1": tenure.HostSpec(address="local")}),
)

assert_type(step.timeout, float | None)
assert_type(step.retries, tenure.Retries)
assert_type(step.when, str | None)
assert_type(step.on_takeover, OnTakeover | None)
assert_type(handler.retries.delay, float)
assert_type(workflow.timeout, float | None)
assert_type(workflow.plan.mode, PlanMode)

tenure.Step(name="a", action="b", timeout=[1])  # type: ignore[arg-type]
tenure.Step(name="a", action="b", retries="3")  # type: ignore[arg-type]
tenure.Step(name="a", action="b", with_items=[1])  # type: ignore[call-arg]
tenure.Step(name="a")  # type: ignore[call-arg]
tenure.Workflow(name="a")  # type: ignore[call-arg]
step.timeout = 3.0  # type: ignore[misc]
