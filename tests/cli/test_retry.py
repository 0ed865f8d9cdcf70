"""``tenure retry``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli

pytestmark = pytest.mark.slow

FLOW = """\
version: v1
name: deploy
inventory:
  hosts: {a: {address: local}, b: {address: local}}
steps:
  - name: fetch
    action: cmd.run
    args: {cmd: 'echo "N=7" >> "$TENURE_OUTPUT"'}
  - name: install
    action: cmd.run
    args: {cmd: 'test "$TENURE_HOST" = a -o -e "$gate" && echo "installed $N"'}
  - name: restart
    action: cmd.run
    args: {cmd: "echo restarted"}
"""


@pytest.fixture
def failed(cli: Cli, tmp_path: Path) -> str:
    """The id of a run that failed on b; nothing fails any more."""
    gate = tmp_path / "gate"
    run = cli.call("run", cli.workflow(FLOW), "--var", f"gate={gate}", "--json")
    assert run.code == 1
    gate.touch()
    run_id: str = run.json_lines[-1]["run_id"]
    return run_id


def started(lines: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(line["step"], line["host"]) for line in lines if line.get("type") == "host.running"]


def test_what_is_left_runs_and_the_lineage_is_shown(cli: Cli, failed: str) -> None:
    done = cli.call("retry", failed, "--json", "--run-id", "second-try")
    assert done.code == 0, done.err
    *events, record = done.json_lines
    assert started(events) == [("install", "b"), ("restart", "a"), ("restart", "b")]
    assert (record["run_id"], record["retry_of"]) == ("second-try", failed)
    assert record["steps"][1]["hosts"]["b"]["stdout"] == "installed 7\n"
    assert f"retry of  {failed}" in cli.call("status", "second-try").out
    assert cli.call("list", "--json").json["runs"][0]["retry_of"] == failed
    assert cli.call("explain", "second-try").out.endswith(f"(a retry of {failed})\n")
    assert cli.call("explain", "second-try", "--json").json["retry_of"] == failed


def test_people_are_told_how_much_is_left(cli: Cli, failed: str) -> None:
    assert f"retrying {failed}: 3 tasks left" in cli.call("retry", failed).err
    assert cli.call("retry", failed, "-q").err == ""


def test_it_can_be_narrowed(cli: Cli, failed: str) -> None:
    only = cli.call("retry", failed, "--only-failed", "--json")
    assert started(only.json_lines) == [("install", "b"), ("restart", "b")]
    again = cli.call("retry", failed, "--from-step", "install", "--limit", "a", "--json")
    assert started(again.json_lines) == [("install", "a"), ("restart", "a")]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--from-step", "instal"], 2, "did you mean 'install'"),
        (["--limit", "c"], 2, 'there is no host or group "c"'),
        (["--limit", "a", "--only-failed"], 7, "others are left"),
        (["--run-id", "x"], 2, "8-128 characters"),
    ],
)
def test_what_cannot_be_is_refused(
    cli: Cli, failed: str, arguments: list[str], code: int, said: str
) -> None:
    refused = cli.call("retry", failed, *arguments)
    assert refused.code == code
    assert said in refused.err
    assert len(cli.call("list", "--json").json["runs"]) == 1


def test_a_run_with_nothing_left_is_not_retried(cli: Cli, failed: str) -> None:
    assert cli.call("retry", failed).code == 0
    refused = cli.call("retry", "latest", "--json")
    assert refused.code == 7
    assert "every host came through every step" in refused.err
    assert cli.call("retry", "no-such-run").code == 5
