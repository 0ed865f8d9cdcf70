"""What a workflow means: a file, an older one, one that is built in Python; durations; and what a
type checker accepts."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.model.errors import InvalidWorkflow
from tenure.model.status import Recovery
from tenure.workflow import spec
from tenure.workflow.durations import LONGEST, parse_duration, show_duration
from tenure.workflow.given import (
    DefaultsGiven,
    HandlerGiven,
    PlanGiven,
    RetriesGiven,
    StepGiven,
    VerifyGiven,
    WorkflowGiven,
)
from tenure.workflow.parse import check_workflow, parse_workflow
from tenure.workflow.schema import workflow_text
from tenure.workflow.spec import Defaults, OnTakeover, Retries, Rolling, Step, Workflow
from tests.workflow.samples import CATALOGUE, HEAD, ONE_STEP, parse, step, workflow
from tests.workflow.whole_files import FULL, MEANT, OLDER


def test_every_key_means_what_it_says() -> None:
    parsed = parse_workflow(FULL, CATALOGUE)
    assert parsed.workflow == MEANT
    assert parsed.notices == ()


def test_json_means_the_same() -> None:
    assert parse(workflow_text(MEANT)) == MEANT
    json.loads(workflow_text(MEANT))


def test_what_is_not_said_has_a_default() -> None:
    read = parse(ONE_STEP)
    assert read == Workflow(name="demo", steps=[step()])
    assert (read.queue, read.priority, read.recovery) == ("default", 0, None)
    assert read.defaults.concurrency == 50
    assert read.steps[0].needs is None


@pytest.mark.parametrize("version", ["v1", "v0.1", "0.1"])
def test_accepted_versions(version: str) -> None:
    read = parse(ONE_STEP.replace("version: v1", f"version: {version}"))
    assert read.version == version


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("when: true", "when", "true"),
        ("when: 1.10", "when", "1.10"),
        ("timeout: ''", "timeout", None),
        ("timeout: 0", "timeout", 0.0),
        ("retries: 3.0", "retries", Retries(max=3)),
        ("continue_on_error: on", "continue_on_error", True),
        ("continue_on_error: 'no'", "continue_on_error", False),
        ("needs:", "needs", None),
        ("loop: [1, {a: b}, null]", "loop", (1, {"a": "b"}, None)),
        ("loop: ${{ things }}", "loop", "${{ things }}"),
        ("must_vars: [11]", "must_vars", ("11",)),
        ("rolling: {batch: 2, max_unreachable: 10%}", "rolling",
         Rolling(batch=2, max_unreachable="10%")),
    ],
)  # fmt: skip
def test_a_step_may_say(line: str, field: str, value: Any) -> None:
    assert getattr(parse(ONE_STEP + f"  {line}\n").steps[0], field) == value


@pytest.mark.parametrize(
    ("hosts", "batch", "failures"), [(8, 2, 0), (3, 1, 0), (10, 2, 1), (100, 25, 10), (0, 1, 0)]
)
def test_a_share_of_the_hosts_is_rounded_down(hosts: int, batch: int, failures: int) -> None:
    rolling = Rolling(batch="25%", max_failures="10%")
    assert rolling.batch_size(hosts) == batch
    assert rolling.failure_budget(hosts) == failures
    assert rolling.unreachable_budget(hosts) is None
    assert Rolling(batch=3, max_failures=2, max_unreachable=1).unreachable_budget(hosts) == 1


# -- notices --------------------------------------------------------------------------------------


def notices(text: str) -> list[str]:
    return [str(notice) for notice in parse_workflow(text, CATALOGUE, source="f").notices]


def test_what_older_files_say_without_effect_is_noticed() -> None:
    text = ONE_STEP + "env_packages: [11]\nvalidation_env: x\ntests: [{name: t}]\n"
    said = "is accepted from older files and has no effect"
    assert notices(text) == [
        f"f:7:1: env_packages: {said}",
        f"f:8:1: validation_env: {said}",
        f"f:9:1: tests: {said}",
    ]
    assert parse(text).env_packages == ("11",)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("vars: {v: 1.10}", ["f:7:11: vars.v: 1.10 is read as the number 1.1; "
                             "quote it if it is meant as text"]),
        ("vars: {v: 1.5, w: '1.10', x: 10, y: 0}", []),
        ("inventory: {groups: {g: {vars: {host: x}}}}",
         ["f:7:33: inventory.groups.g.vars.host: hides Tenure's own variable 'host': "
          "the name of the host a step runs on"]),
        ("inventory: {hosts: {a: }, groups: {a: {hosts: [a]}}}",
         ["f:7:36: inventory.groups.a: 'a' is also a host, and as a target means the host"]),
    ],
)  # fmt: skip
def test_surprises_are_noticed(line: str, said: list[str]) -> None:
    assert notices(ONE_STEP + line) == said


def test_a_file_mode_is_octal_and_no_surprise() -> None:
    text = HEAD + (
        "steps: [{name: a, action: template.render, args: {src: a, dest: b, mode: 0644}}]"
    )
    assert parse(text).steps[0].args["mode"] == 0o644
    assert notices(text) == []


@pytest.mark.parametrize("text", OLDER, ids=["pg-restore", "everywhere"])
def test_a_file_of_the_older_runner_stays_valid(text: str) -> None:
    parsed = parse_workflow(text, CATALOGUE)
    assert not [wanted for wanted in parsed.wanted if wanted.certain]


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


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), "a datetime cannot be in a workflow"),
        ({1, 2}, "a set cannot be in a workflow"),
        (float("nan"), "nan is not a finite number"),
        ("\ud800", "the text is no Unicode"),
    ],
)
def test_a_value_no_file_can_hold_is_a_mistake(value: Any, said: str) -> None:
    built = workflow(vars={"v": value})
    assert built_mistakes(built) == [f"workflow: vars.v: {said}"]
    with pytest.raises(InvalidWorkflow):
        workflow_text(built)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h30m", 5400.0),
        ("300ms", 0.3),
        (".5s", 0.5),
        ("1.5h", 5400.0),
        ("100µs", 0.0001),
        ("1ns", 1e-9),
        (" 5s ", 5.0),
        ("1h1m1s1ms", 3661.001),
    ],
)
def test_reads(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("30", "has no unit: write 30s"),
        ("-5s", "is negative: write it without the sign, like 30s, or leave it out"),
        ("", "is not a duration: write it like 30s"),
        ("5 s", "is not a duration"),
        ("5S", "is not a duration"),
        ("٣s", "is not a duration"),
        ("200000d", "is longer than a century"),
        ("9" * 90 + "h", "is longer than a century"),
    ],
)
def test_refuses(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (90, "1m30s"), (5400, "1h30m"), (0.5, "500ms"), (61.5, "1m1.5s"), (-30, "-30s")],
)
def test_shows_shortly(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text


@given(st.floats(1e-9, LONGEST) | st.just(0.0))
def test_what_is_shown_is_read_back_exactly(seconds: float) -> None:
    assert parse_duration(show_duration(seconds)) == seconds


ROOT = Path(__file__).parents[2]
TAKEN = {
    spec.Retries: RetriesGiven,
    spec.Verify: VerifyGiven,
    spec.Handler: HandlerGiven,
    spec.Step: StepGiven,
    spec.Defaults: DefaultsGiven,
    spec.PlanSettings: PlanGiven,
    spec.Workflow: WorkflowGiven,
}


@pytest.mark.parametrize("part", TAKEN, ids=lambda part: part.__name__)
def test_a_checker_knows_every_field(part: type[msgspec.Struct]) -> None:
    optional = {field.name for field in msgspec.structs.fields(part) if not field.required}
    assert TAKEN[part].__optional_keys__ == optional  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_users_program_is_accepted_in_strict_mode(tmp_path: Path) -> None:
    program = Path(__file__).with_name("typed_use.py")
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores"]
    checked = subprocess.run(
        [*command, f"--cache-dir={tmp_path}", "--config-file=", str(program)],
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout) == (
        0,
        "Success: no issues found in 1 source file\n",
    ), checked.stdout + checked.stderr
