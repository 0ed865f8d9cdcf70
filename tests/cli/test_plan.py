"""``tenure plan``: what would run where, and what it would change; secrets are not shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

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


def test_a_plan_says_which_secret_it_would_need(cli: Cli) -> None:
    planned = cli.call("plan", cli.workflow(NEEDY), "--var", "zone=one")
    assert planned.code == 0
    assert "depends on a secret: token; give it with --secret to see more" in planned.out
    assert "is not defined in 'token'" not in planned.out


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("template.render, args: {template: x, dest: /nowhere/x}", "would fail  b"),
        ("env.set, args: {env: {other: 1}}", "would fail  b"),
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


SECRET = "Zq\"pla'nted\\|secret7"
KEY = "-----BEGIN-----\nZqfirstline\nZq2\nx\x07Zqlastline"


def flow_of(*steps: dict[str, Any]) -> str:
    named = [{"name": f"step {number}", **each} for number, each in enumerate(steps)]
    return json.dumps({"version": "v1", "name": "conf", "secrets": ["token"], "steps": named})


def renders(template: str, dest: object) -> dict[str, Any]:
    return {"action": "template.render", "args": {"template": template, "dest": str(dest)}}


def masked_plan(cli: Cli, *steps: dict[str, Any]) -> str:
    """For people and for programs; the secret is in neither."""
    said = cli.call("plan", cli.workflow(flow_of(*steps)), "--secret", "token")
    told = cli.call("plan", cli.workflow(flow_of(*steps)), "--secret", "token", "--json")
    assert (said.code, told.code) == (0, 0), said.err + told.err
    assert "Zq" not in said.out + said.err + told.out + told.err
    return said.out


@pytest.fixture
def token(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_SECRET_TOKEN", SECRET)


@pytest.mark.slow
@pytest.mark.usefixtures("token")
def test_the_difference_is_masked_on_both_sides(cli: Cli) -> None:
    dest = cli.folder / "conf"
    dest.write_text(f"key = {SECRET}\nport = 1\n")
    said = masked_plan(cli, renders("key = {{ token }}\nport = 2\n", dest))
    assert [line.strip() for line in said.splitlines()][-4:] == [
        "@@ -1,2 +1,2 @@",
        "key = ***",
        "-port = 1",
        "+port = 2",
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("token")
def test_of_a_secret_of_several_lines_no_line_is_shown(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_SECRET_TOKEN", KEY)
    dest = cli.folder / "conf"
    dest.write_text(f"# old\n{KEY}\n# end")
    said = masked_plan(cli, renders("# new\n{{ token }}\n", dest))
    assert "# new" in said
    assert "***" in said


@pytest.mark.slow
@pytest.mark.usefixtures("token")
def test_a_step_that_would_show_it_to_others_would_fail_and_asks_no_host(cli: Cli) -> None:
    said = masked_plan(cli, renders("x", f"{cli.folder}/${{{{ token }}}}"))
    assert "would fail" in said
    assert "args.dest: there is a secret in it" in said


@pytest.mark.slow
@pytest.mark.usefixtures("token")
def test_what_else_is_said_of_a_step_is_masked(cli: Cli) -> None:
    loops = {
        "action": "http.request",
        "args": {"url": "http://h/${{ item }}"},
        "loop": ["${{ token }}"],
    }
    assert "***" in masked_plan(cli, loops)


def test_hosts_that_cannot_be_reached_are_said_to_be_unreachable(cli: Cli) -> None:
    flow = cli.workflow(
        "version: v1\nname: far\n"
        "inventory:\n  hosts: {a: {address: local}, b: {address: web1.example.com}}\n"
        "steps:\n  - {name: one, action: cmd.run, args: {cmd: 'true'}}\n"
        "  - {name: two, action: script.shell, args: {script: 'true'}}\n"
    )
    steps = cli.call("plan", flow, "--json").json["steps"]
    decided = [[(task["host"], task["decision"]) for task in step["tasks"]] for step in steps]
    assert decided == [[("a", "run"), ("b", "unreachable")]] * 2
    assert "unreachable  b" in cli.call("plan", flow).out
