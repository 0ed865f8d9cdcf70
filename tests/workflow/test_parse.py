"""What a workflow file means."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tenure.model.errors import InvalidWorkflow
from tenure.model.status import Recovery
from tenure.workflow.dump import workflow_text
from tenure.workflow.parse import check_workflow, parse_workflow
from tenure.workflow.spec import (
    CallbackSpec,
    Defaults,
    GroupSpec,
    Handler,
    HostSpec,
    Inventory,
    OnTakeover,
    PlanMode,
    PlanSettings,
    Retries,
    Rolling,
    Step,
    Verify,
    Workflow,
)
from tests.workflow.samples import CATALOGUE, HEAD, ONE_STEP, parse, step, workflow

FULL = """
version: v1
name: rolling-deploy
description: text
queue: night
priority: -5
labels: {team: web, build: 1.10}
recovery: resume
timeout: 2h
secrets: [db_password]
inventory:
  hosts:
    web1: {address: "ssh://deploy@10.0.0.1:22", vars: {zone: a}}
    web2: {address: "http://10.0.0.2:7072"}
    here: {address: local}
    bare:
  groups: {web: {hosts: [web1, web2], vars: {tier: 1}}}
  vars: {region: eu}
vars: {release: "1.4"}
defaults: {timeout: 10m, concurrency: 20, on_takeover: ask}
callbacks:
- {url: "https://hooks.example/x", events: [run, step], secret_env: TENURE_HOOK_A, headers: {X: y}}
plan: {mode: manual-approve, strategy: sequential, approval_timeout: 1d}
steps:
  - name: drain
    targets: [web]
    action: cmd.run
    args: {cmd: "lb drain $TENURE_HOST"}
  - name: restart
    needs: [drain]
    targets: [web]
    action: cmd.run
    args: {cmd: "systemctl restart app"}
    when: release != "1.3"
    loop: [a, b]
    retries: {max: 3, delay: 5s, backoff: 2, max_delay: 1m}
    timeout: 30s
    continue_on_error: yes
    must_vars: [A]
    expect_vars: [B]
    notify: [reload]
    concurrency: 10
    rolling: {batch: 25%, max_failures: 1}
    verify: {cmd: "systemctl is-active app", timeout: 5s}
    on_takeover: verify
    become: root
handlers: [{name: reload, action: cmd.run, args: {cmd: "true"}, retries: 2, when: zone == 'a'}]
"""

MEANT = Workflow(
    version="v1",
    name="rolling-deploy",
    description="text",
    queue="night",
    priority=-5,
    labels={"team": "web", "build": "1.10"},
    recovery=Recovery.RESUME,
    timeout=7200.0,
    secrets=("db_password",),
    inventory=Inventory(
        hosts={
            "web1": HostSpec(address="ssh://deploy@10.0.0.1:22", vars={"zone": "a"}),
            "web2": HostSpec(address="http://10.0.0.2:7072"),
            "here": HostSpec(address="local"),
            "bare": HostSpec(),
        },
        groups={"web": GroupSpec(hosts=("web1", "web2"), vars={"tier": 1})},
        vars={"region": "eu"},
    ),
    vars={"release": "1.4"},
    defaults=Defaults(timeout=600.0, concurrency=20, on_takeover=OnTakeover.ASK),
    callbacks=(
        CallbackSpec(
            url="https://hooks.example/x",
            events=("run", "step"),
            secret_env="TENURE_HOOK_A",
            headers={"X": "y"},
        ),
    ),
    plan=PlanSettings(mode=PlanMode.MANUAL_APPROVE, approval_timeout=86400.0),
    steps=(
        Step(
            name="drain",
            targets=("web",),
            action="cmd.run",
            args={"cmd": "lb drain $TENURE_HOST"},
        ),
        Step(
            name="restart",
            needs=("drain",),
            targets=("web",),
            action="cmd.run",
            args={"cmd": "systemctl restart app"},
            when='release != "1.3"',
            loop=("a", "b"),
            retries=Retries(max=3, delay=5.0, backoff=2.0, max_delay=60.0),
            timeout=30.0,
            continue_on_error=True,
            must_vars=("A",),
            expect_vars=("B",),
            notify=("reload",),
            concurrency=10,
            rolling=Rolling(batch="25%", max_failures=1),
            verify=Verify(cmd="systemctl is-active app", timeout=5.0),
            on_takeover=OnTakeover.VERIFY,
            become="root",
        ),
    ),
    handlers=(
        Handler(
            name="reload",
            action="cmd.run",
            args={"cmd": "true"},
            retries=Retries(max=2),
            when="zone == 'a'",
        ),
    ),
)


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
        ("vars: {hosts: x}", ["f:7:8: vars.hosts: hides the variable 'hosts'; "
                              "rename it if you want to read what hosts exported"]),
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


# -- files of the older runner --------------------------------------------------------------------

OLDER = [
    """
version: v0.1
name: pg-restore
description: restore a backup
env_packages: [postgres]
validation_env: staging
inventory:
  groups:
    db: {hosts: [db1]}
  hosts:
    db1: {address: "http://10.0.0.5:7072", vars: {port: 5432}}
  vars: {user: postgres}
vars:
  backup_path: /var/backups/pg
plan: {mode: manual-approve, strategy: sequential}
steps:
  - name: check backup
    targets: [db]
    action: cmd.run
    args:
      cmd: |
        ts=$(date +%s)
        test -f ${backup_path}/latest.dump && echo "BOPS_EXPORT:BACKUP_OK=true ${ts}"
      export_vars: "yes"
      env: {PGPORT: 5432}
    expect_vars: [BACKUP_OK]
    timeout: 1h30m
  - name: restore
    targets: [db]
    action: shell.run
    args: {script: "pg_restore ${backup_path}/latest.dump", dir: /tmp}
    must_vars: [BACKUP_OK]
    when: ${BACKUP_OK} == true && port >= 5000
    retries: 2
    continue_on_error: false
    notify: [reload]
handlers:
  - name: reload
    action: cmd.run
    args: {cmd: systemctl reload postgresql}
    timeout: 300ms
tests:
  - {name: smoke, action: cmd.run, args: {cmd: psql -c 'select 1'}}
""",
    """
version: 0.1
name: everywhere
inventory: {groups: {all: {hosts: [localhost, 10.0.0.9]}}}
plan: {mode: '', strategy: ''}
steps:
  - {name: set, action: env.set, args: {env: {MODE: fast, N: 3}}}
  - name: each
    action: cmd.run
    args: {cmd: 'echo $item', max_output_bytes: 100}
    loop: [a, {b: c}, 3]
    when: yes
  - name: file
    action: template.render
    args: {src: a.tmpl, dest: /tmp/a, mode: 0644, vars: {x: 1}}
""",
]


@pytest.mark.parametrize("text", OLDER, ids=["pg-restore", "everywhere"])
def test_a_file_of_the_older_runner_stays_valid(text: str) -> None:
    parse(text)


def test_an_older_file_means_the_same() -> None:
    read = parse(OLDER[0])
    check, restore = read.steps
    assert check.args["export_vars"] == "yes"
    assert check.timeout == 5400
    assert restore.when == "${BACKUP_OK} == true && port >= 5000"
    assert restore.retries.policy.attempts == 3
    assert read.handlers[0].timeout == 0.3
    assert read.plan.mode is PlanMode.MANUAL_APPROVE


# -- workflows built in Python --------------------------------------------------------------------


def test_python_may_say_it_as_the_file_does() -> None:
    built = Workflow(
        name="demo",
        steps=[
            Step(
                name="one",
                action="cmd.run",
                args={"cmd": "true"},
                timeout="1h30m",  # type: ignore[arg-type]
                retries=3,  # type: ignore[arg-type]
                when=True,  # type: ignore[arg-type]
                on_takeover="fail",  # type: ignore[arg-type]
                needs=[],
            )
        ],
        recovery="resume",  # type: ignore[arg-type]
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
        Defaults(timeout="30")  # type: ignore[arg-type]


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
        "workflow: steps[0].timeout: '-5s' is negative",
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
