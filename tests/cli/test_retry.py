"""``tenure retry``."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, finish

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
    assert "tasks left" not in refused.err
    assert len(cli.call("list", "--json").json["runs"]) == 1


def test_an_id_that_is_taken_is_refused_before_anything_is_said_of_the_rest(
    cli: Cli, failed: str
) -> None:
    refused = cli.call("retry", failed, "--run-id", failed)
    assert refused.code == cli.call("run", cli.workflow(FLOW), "--run-id", failed).code
    assert f"run {failed}: this run_id is taken" in refused.err
    assert "tasks left" not in refused.err


def test_a_run_with_nothing_left_is_not_retried(cli: Cli, failed: str) -> None:
    assert cli.call("retry", failed).code == 0
    refused = cli.call("retry", "latest", "--json")
    assert refused.code == 7
    assert "every host came through every step" in refused.err
    assert cli.call("retry", "no-such-run").code == 5


def test_a_step_is_meant_by_name_or_index(cli: Cli, failed: str) -> None:
    again = cli.call("retry", failed, "--from-step", "2", "--limit", "a", "--json")
    assert started(again.json_lines) == [("restart", "a")]
    unknown = cli.call("retry", failed, "--again", "9")
    assert unknown.code == 2
    assert "no step named '9'; there is fetch, install, restart" in unknown.err


def test_what_is_kept_nowhere_is_said_with_the_way_out(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_SECRET_TOKEN", "s3cr3t-value")
    flow = FLOW.replace("name: deploy", "name: deploy\nsecrets: [token]").replace("N=7", "N=$token")
    gate = tmp_path / "gate"
    run = cli.call("run", cli.workflow(flow), "--var", f"gate={gate}", "--json")
    gate.touch()
    refused = cli.call("retry", "latest")
    assert refused.code == 7
    assert "step 'fetch' exported N with a secret in it on a, b" in refused.err
    assert "tasks left" not in refused.err
    assert "--again fetch" in refused.err
    done = cli.call("retry", "latest", "--again", "fetch", "--json")
    assert (done.code, done.json_lines[-1]["retry_of"]) == (0, run.json_lines[-1]["run_id"])
    assert [step for step, _ in started(done.json_lines)].count("fetch") == 2


def test_a_retry_that_waits_for_approval_is_named(cli: Cli) -> None:
    flow = cli.workflow(FLOW.replace("steps:", "plan: {mode: manual-approve}\nsteps:"))
    assert cli.call("run", flow, "--approve", "--var", "gate=/nowhere").code == 1
    old = cli.call("list", "--json").json["runs"][0]["run_id"]
    assert cli.call("retry", old, "--run-id", "waits-for-you").code == 7
    refused = cli.call("retry", old)
    assert refused.code == 7
    assert "waits-for-you retries it and is queued: approve it" in refused.err


@pytest.mark.slow
def test_of_several_at_the_same_moment_one_executes(cli: Cli, tmp_path: Path) -> None:
    gate, go = tmp_path / "gate", tmp_path / "go"
    waits = f"while ! test -e {go}; do sleep 0.05; done; echo restarted"
    flow = FLOW.replace("echo restarted", waits)
    assert cli.call("run", cli.workflow(flow), "--var", f"gate={gate}").code == 1
    gate.touch()
    old = cli.call("list", "--json").json["runs"][0]["run_id"]
    processes = [cli.start("retry", old, "--json") for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        ends = as_completed([pool.submit(finish, each) for each in processes])
        refused = [each.result() for each in islice(ends, 3)]
        go.touch()
        (went_on,) = [each.result() for each in ends]
    assert [each.code for each in refused] == [7, 7, 7], [each.err for each in refused]
    assert went_on.code == 0, went_on.err
    assert all(" retries it and is " in each.err for each in refused)
