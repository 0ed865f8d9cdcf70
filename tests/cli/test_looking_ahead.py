"""``plan``, ``validate`` and ``schema``: before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from tenure.cli.display.preview_lines import preview_lines
from tenure.cli.preview import Decision, Preview, StepPreview, TaskPreview
from tests.cli.conftest import Cli
from tests.cli.flows import BREAK, GREET

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


# -- validate -------------------------------------------------------------------------------------

WRONG = """\
version: v1
name: wrong
steps:
  - name: a
    action: cmd.rum
    timeout: 30
  - name: b
    action: cmd.run
    args: {cmd: ls}
    whem: x
"""


@pytest.mark.parametrize(
    ("data", "line", "column", "said"),
    [
        (b"\xef\xbb\xbfb: x\xe9\n", 1, 5, r"is not UTF-8 text: the byte \xe9"),
        (b"a: 1\nb: x\xe9\n", 2, 5, r"is not UTF-8 text: the byte \xe9"),
        ("# é\nb: é".encode() + b"\xff", 2, 5, r"is not UTF-8 text: the byte \xff"),
        ("version: v1\n".encode("utf-16"), 1, 1, r"is not UTF-8 text: the byte \xff"),
        ("a: é".encode()[:-1], 1, 4, r"is not UTF-8 text: the byte \xc3"),
        (b"a: 1\n\n\n\n\nb: \x07\n", 6, 4, r"the character \x07 is not allowed in YAML"),
    ],
)
def test_bytes_that_are_no_text_are_shown_where_they_stand(
    cli: Cli, data: bytes, line: int, column: int, said: str
) -> None:
    (cli.folder / "flow.yaml").write_bytes(data)
    (mistake,) = cli.call("validate", "flow.yaml", "--json").json["files"][0]["mistakes"]
    assert (mistake["line"], mistake["column"], mistake["message"]) == (line, column, said)
    assert "save the file as UTF-8" in mistake["hint"]


@pytest.mark.parametrize("text", ["[" * 100, "#" * (1 << 21)], ids=["deep", "long"])
def test_validate_says_as_json_what_to_do_about_a_limit(cli: Cli, text: str) -> None:
    checked = cli.call("validate", cli.workflow(text), "--json").json
    assert checked["files"][0]["mistakes"][0]["hint"]


def test_a_character_that_is_cut_by_the_limit_of_a_file_is_no_mistake(cli: Cli) -> None:
    (cli.folder / "flow.yaml").write_bytes("é".encode() * (1 << 20))
    assert "more than" in cli.call("validate", "flow.yaml").out


def test_validate_reports_every_mistake_of_every_file(cli: Cli) -> None:
    wrong, good = cli.workflow(WRONG, "wrong.yaml"), cli.workflow(GREET, "good.yaml")
    checked = cli.call("validate", wrong, good, "missing.yaml")
    assert checked.code == 2
    lines = checked.out.splitlines()
    assert any(line.startswith(f"{wrong}:5:13: steps[0].action: ") for line in lines)
    assert any(line.startswith(f"{wrong}:6:14: steps[0].timeout: ") for line in lines)
    assert any(line.startswith(f"{wrong}:10:5: ") and "'when'" in line for line in lines)
    assert f"✓ {good} is valid" in lines
    assert (
        "missing.yaml: cannot be read: No such file or directory; there is good.yaml, wrong.yaml"
        in lines
    )


def test_valid_files_exit_with_0_and_notices_are_shown(cli: Cli) -> None:
    checked = cli.call("validate", cli.workflow(f"{BREAK}env_packages: [curl]\n"))
    assert checked.code == 0
    assert "flow.yaml is valid" in checked.out
    assert "notice: " in checked.err
    assert "env_packages" in checked.err


NEEDY = """\
version: v1
name: needy
vars: {release: "1.4"}
secrets: [token]
steps:
  - name: a
    action: cmd.run
    when: zone == "one"
    args: {cmd: "echo ${{ token }}"}
  - name: b
    action: cmd.run
    args: {cmd: "echo ${{ relase }}"}
"""


def test_validate_names_variables_that_a_run_has_to_be_given(cli: Cli) -> None:
    flow = cli.workflow(NEEDY)
    checked = cli.call("validate", flow)
    assert checked.code == 0
    assert checked.out == f"✓ {flow} is valid for runs that are given zone\n"
    needed, doubtful = checked.err.splitlines()
    assert needed.startswith(f"notice: {flow}:8:11: steps[0].when: 'zone' is not defined here")
    assert doubtful.startswith(f"notice: {flow}:12:27: steps[1].args.cmd: 'relase' is not defined")
    assert "did you mean 'release'?" in doubtful
    (verdict,) = cli.call("validate", flow, "--json").json["files"]
    assert verdict["needs"] == ["zone"]
    assert len(verdict["notices"]) == 2


def test_validate_names_a_missing_variable_once_where_it_is_used_first(cli: Cli) -> None:
    again = (
        '  - {name: c, action: cmd.run, when: zone == "two", args: {cmd: "echo ${{ relase }}"}}\n'
    )
    flow = cli.workflow(NEEDY + again)
    needed, doubtful = cli.call("validate", flow).err.splitlines()
    assert f"{flow}:8:11: steps[0].when: 'zone' is not defined here" in needed
    assert f"{flow}:12:27: steps[1].args.cmd: 'relase' is not defined" in doubtful
    checked = cli.call("validate", flow, "--var", "other=1")
    assert checked.out.count("'zone' is not defined") == 1
    assert checked.err.count("is not defined") == 1


def test_validate_tells_undefined_variables_and_other_mistakes_at_once(cli: Cli) -> None:
    flow = cli.workflow(NEEDY + "    timeout: 30\n")
    checked = cli.call("validate", flow)
    assert checked.out.startswith(f"{flow}:13:14: steps[1].timeout: ")
    assert [line.split(": ")[1:3] for line in checked.err.splitlines()] == [
        [f"{flow}:8:11", "steps[0].when"],
        [f"{flow}:12:27", "steps[1].args.cmd"],
    ]
    for verb in ("validate", "plan", "run"):
        told = cli.call(verb, flow, "--var", "other=1")
        assert told.code == 2
        lines = (told.out + told.err).splitlines()
        assert lines[0].startswith(f"{flow}:8:11: steps[0].when: 'zone' is not defined here")
        assert lines[1].startswith(f"{flow}:13:14: steps[1].timeout: ")
        given = cli.call(verb, flow, "--var", "zone=one")
        assert "zone" not in given.out + given.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--var", "zone=one"], 0),
        (["--vars-file", "vars.yaml"], 0),
        (["--var", "zone=one", "--secret", "token=@key"], 0),
        (["--var", "zones=one"], 2),
        (["--secret", "token"], 2),
        (["--secret", "no name"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_validate_with_variables_judges_as_a_run_would(
    cli: Cli, arguments: list[str], code: int
) -> None:
    (cli.folder / "vars.yaml").write_text("zone: one")
    (cli.folder / "key").write_text("s3cr3t")
    flow = cli.workflow(NEEDY)
    checked = cli.call("validate", flow, *arguments)
    assert checked.code == code
    assert cli.call("plan", flow, *arguments).code == code
    if code == 0:
        assert checked.out == f"✓ {flow} is valid\n"
    elif "no name" not in arguments:
        assert "steps[0].when: 'zone' is not defined here; give it with --var" in checked.out
        assert checked.out.endswith(f"✗ {flow} has 1 mistake\n")


@pytest.mark.parametrize("verb", ["plan", "validate", "run"])
def test_a_secret_that_the_workflow_does_not_declare_is_refused(cli: Cli, verb: str) -> None:
    (cli.folder / "key").write_text("s3cr3t")
    refused = cli.call(verb, cli.workflow(NEEDY), "--var", "zone=one", "--secret", "tokn=@key")
    assert refused.code == 2
    said = "tokn is not among the secrets of this workflow; did you mean 'token'?"
    assert said in refused.out + refused.err
    typed = cli.call(verb, cli.workflow(NEEDY), "--var", "zone=one", "--secret", "token=abc")
    assert typed.code == 2
    assert "every user of this machine" in typed.err


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


def test_validate_for_programs(cli: Cli) -> None:
    wrong = cli.workflow(WRONG, "wrong.yaml")
    checked = cli.call("validate", wrong, "--json")
    assert checked.code == 2
    (verdict,) = checked.json["files"]
    assert (verdict["file"], verdict["valid"], verdict["notices"]) == (wrong, False, [])
    assert {"message", "path", "hint", "source", "line", "column"} == verdict["mistakes"][0].keys()


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"\xff", b"a: &a [*a]", b"x: !!python/object:os.system {}", b"{" * 999]
)
def test_hostile_files_are_refused_calmly(cli: Cli, content: bytes) -> None:
    path = Path(cli.folder / "hostile.yaml")
    path.write_bytes(content)
    checked = cli.call("validate", str(path))
    assert checked.code == 2
    assert "hostile.yaml" in checked.out
    assert "Traceback" not in checked.err


def test_the_schema_knows_the_actions(cli: Cli) -> None:
    schema = cli.call("schema", "--json").json
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert "args of cmd.run" in schema["$defs"]
    assert cli.call("schema").json == schema


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


TEMPLATES = """
version: v1
name: conf
inventory: {hosts: {a: {address: local, vars: {zone: north}}, b: {address: local}}}
steps:
  - {name: before, action: BEFORE}
  - {name: render, action: template.render, args: {src: conf.j2, dest: /nowhere/conf}}
  - {name: after, action: cmd.run, args: {cmd: 'echo zone=1 >> $TENURE_OUTPUT'}}
"""


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


def test_validate_reads_the_templates_that_would_travel(cli: Cli) -> None:
    before = "file.copy, args: {src: conf.j2, dest: /nowhere/x}"
    flow = cli.workflow(TEMPLATES.replace("BEFORE", before).replace("zone: north", ""))
    assert cli.call("validate", flow).out == f"✓ {flow} is valid\n"
    conf = cli.folder / "conf.j2"
    conf.write_text("# zones\n{{ zone }}\n")
    told = cli.call("validate", flow)
    assert told.out == f"✓ {flow} is valid for runs that are given zone\n"
    said = f"{flow}:7:57: steps[1].args.src: conf.j2:2: 'zone' is not defined here; give it with"
    assert told.err.startswith(f"notice: {said} --var zone=…")
    assert cli.call("validate", flow, "--var", "zone=1").code == 0
    missing = cli.call("validate", flow, "--var", "other=1")
    assert (missing.code, missing.out.splitlines()[0].startswith(said)) == (2, True)


@pytest.mark.parametrize("content", [b"{{ zone }}\xff", b"{{ zone }}" + b" " * 1024**2])
def test_validate_leaves_files_alone_that_no_run_would_take(cli: Cli, content: bytes) -> None:
    (cli.folder / "conf.j2").write_bytes(content)
    flow = TEMPLATES.replace("BEFORE", "template.render, args: {template: x, dest: /nowhere/x}")
    assert cli.call("validate", cli.workflow(flow.replace("zone: north", ""))).err == ""
