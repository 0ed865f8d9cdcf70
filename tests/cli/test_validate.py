"""``validate`` and ``schema``: what is wrong with a file, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.flows import GREET, NEEDY

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
        (b"a: 1\nb: x\xe9\n", 2, 5, r"is not UTF-8 text: the byte \xe9"),
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


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"a: &a [*a]", b"x: !!python/object:os.system {}"]
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


COPIES = """
version: v1
name: copies
steps:
  - {name: first, action: cmd.run, args: {cmd: "echo begun"}}
  - {name: copy, action: file.copy, args: {src: conf/site.conf, dest: out.conf}}
"""


@pytest.mark.parametrize("verb", ["validate", "plan", "run", "submit"])
def test_a_file_that_is_missing_is_found_before_the_first_step(cli: Cli, verb: str) -> None:
    flow = cli.workflow(COPIES)
    refused = cli.call(verb, flow)
    assert refused.code == 2
    said = "steps[1].args.src: conf/site.conf cannot be read: No such file or directory"
    assert said in refused.out + refused.err
    assert "begun" not in refused.out
    assert cli.call("list", "--json").json["runs"] == []


@pytest.mark.parametrize("verb", ["validate", "plan", "run", "submit"])
def test_a_file_in_the_working_directory_is_used_as_older_runners_did(cli: Cli, verb: str) -> None:
    (cli.folder / "flows").mkdir()
    flow = cli.workflow(COPIES.replace("out.conf", f"{cli.folder}/out.conf"), "flows/flow.yaml")
    (cli.folder / "conf").mkdir()
    (cli.folder / "conf" / "site.conf").write_text("found\n")
    done = cli.call(verb, flow)
    assert done.code == 0
    assert "notice: steps[1].args.src: conf/site.conf is not beside the workflow" in done.err
    if verb == "run":
        assert (cli.folder / "out.conf").read_text() == "found\n"


@pytest.mark.parametrize("verb", ["validate", "plan", "run", "submit"])
def test_a_name_close_to_a_declared_one_is_refused_and_another_is_worth_a_notice(
    cli: Cli, verb: str
) -> None:
    flow = cli.workflow(
        "version: v1\nname: demo\nvars: {release: '1'}\nsteps:\n"
        "  - {name: a, action: cmd.run, args: {cmd: 'echo $USED of ${release}'}}\n"
    )
    refused = cli.call(verb, flow, "--var", "relase=2")
    assert refused.code == 2
    assert "'relase'; did you mean 'release'?" in refused.out + refused.err
    done = cli.call(verb, flow, "--var", "release=2", "--var", "USED=x", "--var", "MY_OWN=1")
    assert done.code == 0
    (notice,) = [line for line in done.err.splitlines() if line.startswith("notice: ")]
    assert notice.startswith("notice: --var MY_OWN: the workflow does not mention it")
