"""``tenure plan``: what would run where, and what it would change."""

from __future__ import annotations

from typing import Any

import click
import pytest

from tenure.cli.commands.plan import Decision, Preview, StepPreview, TaskPreview, preview_lines
from tests.cli.conftest import Cli
from tests.cli.flows import GREET, NEEDY, TEMPLATES

MIXED = """\
version: v1
name: mixed
inventory:
  hosts:
    a: {address: local, vars: {zone: one}}
    b: {address: local, vars: {zone: two}}
    c: {address: local, vars: {zone: one}}
steps:
  - name: choose
    action: cmd.run
    when: zone == "one"
    args: {cmd: "echo X=1 >> $TENURE_OUTPUT"}
  - name: later
    action: cmd.run
    when: X == "1"
    args: {cmd: "echo later"}
  - name: each
    targets: [a]
    action: cmd.run
    loop: [p, q]
    args: {cmd: "echo ${item}"}
    notify: [reload]
handlers:
  - {name: reload, action: cmd.run, args: {cmd: "echo reload"}}
"""


def test_a_plan_says_what_would_run_where(cli: Cli) -> None:
    planned = cli.call("plan", cli.workflow(MIXED))
    assert planned.code == 0
    lines = planned.out.splitlines()
    assert lines[0] == "mixed  3 steps, 3 hosts"
    assert '  choose  cmd.run · when zone == "one"' in lines
    assert "    runs  a, c" in lines
    assert "    skipped  b" in lines
    assert "    not known yet  a, b, c" in lines
    assert "  each  cmd.run · after later · in a loop" in lines
    assert "    runs  a (2 items)" in lines
    assert "  handlers, if notified: reload" in lines


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("{batch: 34%, max_failures: 50%}", "in batches of 1, 1 may fail"),
        ("{batch: 2, max_unreachable: 1}", "in batches of 2, 0 may fail, 1 be unreachable"),
    ],
)
def test_a_plan_says_batches_and_budget_in_hosts(cli: Cli, settings: str, said: str) -> None:
    flow = cli.workflow(
        MIXED.replace("  - name: later\n", f"    rolling: {settings}\n  - name: later\n")
    )
    planned = cli.call("plan", flow)
    assert f'  choose  cmd.run · when zone == "one" · {said}' in planned.out.splitlines()
    step = cli.call("plan", flow, "--json", "--limit", "a,b").json["steps"][0]
    assert step["rolling"]["batch"] in (1, 2)


def test_a_plan_for_programs_has_every_host(cli: Cli) -> None:
    plan = cli.call("plan", cli.workflow(MIXED), "--json").json
    choose, later, each = plan["steps"]
    assert [(task["host"], task["decision"]) for task in choose["tasks"]] == [
        ("a", "run"),
        ("b", "skip"),
        ("c", "run"),
    ]
    assert {task["decision"] for task in later["tasks"]} == {"later"}
    assert "X" in later["tasks"][0]["summary"]
    assert [task["item"] for task in each["tasks"]] == ["p", "q"]
    assert plan["handlers"] == ["reload"]


def test_a_plan_changes_nothing(cli: Cli) -> None:
    flow = cli.workflow(GREET.replace("echo bye", f"touch {cli.home}/executed"))
    assert cli.call("plan", flow).code == 0
    assert not (cli.home / "executed").exists()
    assert not (cli.home / ".local").exists()


def test_a_plan_takes_the_flags_of_a_run(cli: Cli) -> None:
    flow = cli.workflow(MIXED)
    limited = cli.call("plan", flow, "--limit", "a,c", "--var", "X=1", "--json").json
    assert [len(step["tasks"]) for step in limited["steps"]] == [2, 2, 2]
    assert {task["decision"] for task in limited["steps"][1]["tasks"]} == {"run"}


def test_a_plan_of_many_hosts_stays_short(cli: Cli) -> None:
    hosts = ", ".join(f"web{n}: {{address: local}}" for n in range(500))
    flow = cli.workflow(
        f"version: v1\nname: wide\ninventory: {{hosts: {{{hosts}}}}}\n"
        "steps: [{name: s, action: cmd.run, args: {cmd: 'true'}}]"
    )
    planned = cli.call("plan", flow)
    assert "web0, web1, web10, web100, web101 and 495 more" in planned.out
    assert len(planned.out.splitlines()) < 8


def test_differences_and_troubles_are_shown_beside_their_hosts() -> None:
    def task(host: str, decision: Decision, **facts: Any) -> TaskPreview:
        return TaskPreview(host=host, address="local", decision=decision, **facts)

    render = {"changed": True, "summary": "would write /etc/motd", "diff": "-old\n+new\n"}
    step = StepPreview(
        index=0,
        name="render",
        action="template.render",
        needs=(),
        when=None,
        loops=False,
        tasks=(
            task("a", Decision.RUN, **render),
            task("b", Decision.RUN, changed=False),
            task("c", Decision.RUN, **render),
            task("d", Decision.UNREACHABLE, summary="host d cannot be reached"),
            task("e", Decision.FAIL, summary="no\x1b[2J such file"),
        ),
    )
    plan = Preview(workflow="t", steps=(step,), handlers=(), approval=True)
    assert [click.unstyle(line) for line in preview_lines(plan)] == [
        "t  1 step, 5 hosts",
        "  waits for approval: tenure approve, or run --approve",
        "",
        "  render  template.render",
        "    would change  a, c",
        "      would write /etc/motd",
        "      -old",
        "      +new",
        "    nothing to change  b",
        "    unreachable  d",
        "      host d cannot be reached",
        "    would fail  e",
        "      no such file",
    ]


def test_the_plan_of_a_wrong_file_exits_with_2(cli: Cli) -> None:
    refused = cli.call("plan", cli.workflow("version: v1\n"))
    assert refused.code == 2
    assert "flow.yaml:1:1" in refused.err


def test_a_plan_says_which_secret_it_would_need(cli: Cli) -> None:
    planned = cli.call("plan", cli.workflow(NEEDY), "--var", "zone=one")
    assert planned.code == 0
    assert "depends on a secret: token; give it with --secret to see more" in planned.out
    assert "is not defined in 'token'" not in planned.out


def test_a_plan_without_a_variable_it_needs_is_refused_as_the_run_would_be(cli: Cli) -> None:
    flow = cli.workflow(NEEDY)
    planned, executed = cli.call("plan", flow), cli.call("run", flow)
    assert planned.code == executed.code == 2
    said, *_ = planned.err.splitlines()
    assert "'zone' is not defined here" in said
    secret, same, number = executed.err.splitlines()
    assert ":4:11: secrets[0]: the secret 'token' is not given" in secret
    assert (same, number) == (said, "Error: 2 mistakes; nothing was executed")


def test_a_plan_says_so_too_where_only_a_template_names_the_secret(cli: Cli) -> None:
    (cli.folder / "conf.j2").write_text("password = {{ token }}\n")
    flow = """
version: v1
name: conf
secrets: [token]
steps:
  - {name: file, action: template.render, args: {src: conf.j2, dest: /nowhere/conf}}
  - {name: inline, action: template.render, args: {template: "{{ token }}", dest: /nowhere/conf}}
"""
    planned = cli.call("plan", cli.workflow(flow))
    assert planned.out.count("depends on a secret: token; give it with --secret") == 2
    assert "is not defined" not in planned.out


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("template.render, args: {template: x, dest: /nowhere/x}", "would fail  b"),
        ("file.copy, args: {src: conf.j2, dest: /nowhere/x}", "would fail  b"),
        ("env.set, args: {env: {other: 1}}", "would fail  b"),
        ("env.set, args: {env: {zone: 1}}", "not known yet  b"),
        ("cmd.run, args: {cmd: ./anything}", "not known yet  b"),
    ],
    ids=lambda value: value.split(",")[0],
)
def test_a_template_fails_for_want_of_what_no_earlier_step_can_export(
    cli: Cli, before: str, said: str
) -> None:
    (cli.folder / "conf.j2").write_text("# zones\n{% if 1 %}{{ zone }}{% endif %}\n")
    planned = cli.call("plan", cli.workflow(TEMPLATES.replace("BEFORE", before)))
    lines = planned.out.splitlines()
    place = lines.index(f"    {said}")
    assert lines[place + 1] == "      conf.j2:2: 'zone' is not defined"
    assert lines.index("  render  template.render · after before") < place


ODD = """
version: v1
name: odd
vars: {some: x}
steps:
  - {name: condition, action: env.set, when: some == "x" and zone == 1, args: {env: {}}}
  - {name: items, action: env.set, loop: [1], when: item > 0 and zone == 1, args: {env: {}}}
  - {name: kind, action: wait.port, args: {port: "${{ some }}"}}
"""


def test_whatever_else_no_earlier_step_can_mend_would_fail_too(cli: Cli) -> None:
    steps = cli.call("plan", cli.workflow(ODD), "--json").json["steps"]
    assert [task["decision"] for step in steps for task in step["tasks"]] == ["fail"] * 3
    assert ["'zone' is not defined" in step["tasks"][0]["summary"] for step in steps[:2]] == [
        True,
        True,
    ]
    mended = ODD.replace("steps:\n", "steps:\n  - {name: first, action: cmd.run, args: {cmd: x}}\n")
    _, *steps = cli.call("plan", cli.workflow(mended), "--json").json["steps"]
    assert [task["decision"] for step in steps for task in step["tasks"]] == ["later"] * 3
