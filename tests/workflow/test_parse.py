"""What a workflow file means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tenure.model.status import Recovery
from tenure.workflow.parse import parse_workflow
from tenure.workflow.schema import workflow_text
from tenure.workflow.spec import OnTakeover, PlanMode, Retries, Rolling, Workflow
from tests.workflow.samples import CATALOGUE, HEAD, ONE_STEP, parse, step
from tests.workflow.whole_files import FULL, MEANT


def test_every_key_means_what_it_says() -> None:
    parsed = parse_workflow(FULL, CATALOGUE)
    assert parsed.workflow == MEANT
    assert parsed.notices == ()


def test_kinds_are_members_not_words() -> None:
    read = parse(FULL)
    assert read.recovery is Recovery.RESUME
    assert read.plan.mode is PlanMode.MANUAL_APPROVE
    assert read.steps[1].on_takeover is OnTakeover.VERIFY


def test_json_means_the_same() -> None:
    assert parse(workflow_text(MEANT)) == MEANT
    json.loads(workflow_text(MEANT))


def test_what_is_not_said_has_a_default() -> None:
    read = parse(ONE_STEP)
    assert read == Workflow(name="demo", steps=[step()])
    assert (read.queue, read.priority, read.recovery) == ("default", 0, None)
    assert read.defaults.concurrency == 50
    assert read.steps[0].needs is None


@pytest.mark.parametrize("version", ["v1", "v0.1", "1", "0.1", "'0.1'"])
def test_accepted_versions(version: str) -> None:
    read = parse(ONE_STEP.replace("version: v1", f"version: {version}"))
    assert read.version == version.strip("'")


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("when: true", "when", "true"),
        ("when: 1.10", "when", "1.10"),
        ("when:", "when", None),
        ("timeout:", "timeout", None),
        ("timeout: ''", "timeout", None),
        ("timeout: 0s", "timeout", 0.0),
        ("timeout: 0", "timeout", 0.0),
        ("timeout: '0'", "timeout", 0.0),
        ("retries: 0", "retries", Retries()),
        ("retries: 3.0", "retries", Retries(max=3)),
        ("retries: {delay: 0s}", "retries", Retries()),
        ("continue_on_error: on", "continue_on_error", True),
        ("continue_on_error: 'no'", "continue_on_error", False),
        ("needs: []", "needs", ()),
        ("needs:", "needs", None),
        ("loop: []", "loop", ()),
        ("loop: [1, {a: b}, null]", "loop", (1, {"a": "b"}, None)),
        ("loop: ${{ things }}", "loop", "${{ things }}"),
        ("must_vars: [11]", "must_vars", ("11",)),
        ("rolling: {batch: 2, max_unreachable: 10%}", "rolling",
         Rolling(batch=2, max_unreachable="10%")),
    ],
)  # fmt: skip
def test_a_step_may_say(line: str, field: str, value: Any) -> None:
    assert getattr(parse(ONE_STEP + f"  {line}\n").steps[0], field) == value


def test_numbers_in_text_fields_stay_as_written() -> None:
    read = parse("version: 0.1\nname: 007\ndescription: 1.10\n" + ONE_STEP[len(HEAD) :])
    assert (read.version, read.name, read.description) == ("0.1", "007", "1.10")


@pytest.mark.parametrize(
    ("hosts", "batch", "failures"), [(8, 2, 0), (3, 1, 0), (10, 2, 1), (100, 25, 10), (0, 1, 0)]
)
def test_a_share_of_the_hosts_is_rounded_down(hosts: int, batch: int, failures: int) -> None:
    rolling = Rolling(batch="25%", max_failures="10%")
    assert rolling.batch_size(hosts) == batch
    assert rolling.failure_budget(hosts) == failures
    assert rolling.unreachable_budget(hosts) is None
    assert Rolling(batch=3, max_failures=2, max_unreachable=1).unreachable_budget(hosts) == 1


def test_retries_are_a_policy() -> None:
    policy = Retries(max=2, delay=5, backoff=2, max_delay=8).policy
    assert [policy.wait_after(n) for n in (1, 2, 3)] == [5, 8, None]


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
        ("vars: {v: [007]}", ["f:7:12: vars.v[0]: 007 is read as the number 7; "
                              "quote it if it is meant as text"]),
        ("vars: {v: 1.5, w: '1.10', x: 10, y: 0}", []),
        ("vars: {hosts: x}", ["f:7:8: vars.hosts: hides Tenure's own variable 'hosts': "
                              "what each host exported"]),
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
