"""Going on with runs: approvals and retries, also by several processes at once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from pathlib import Path
from select import select
from subprocess import Popen

import pytest

from tests.cli.conftest import Cli, finish, read_until
from tests.cli.flows import GREET

pytestmark = pytest.mark.slow

ASKS = f"{GREET}plan: {{mode: manual-approve}}\n"


def test_a_run_waits_and_says_what_to_type(cli: Cli) -> None:
    said = cli.call("run", cli.workflow(ASKS))
    assert said.code == 7
    run_id = cli.call("status", "latest", "--json").json["run_id"]
    assert f"waits for approval; to let it begin: tenure approve {run_id}" in said.out
    assert cli.call("explain", run_id).out == "queued until it is approved\n"
    quiet = cli.call("run", cli.workflow(ASKS), "-q")
    assert (quiet.code, quiet.out) == (7, "")
    assert "tenure approve" in quiet.err


def test_approving_runs_it_here_with_the_runs_exit_code(cli: Cli) -> None:
    cli.call("run", cli.workflow(ASKS))
    done = cli.call("approve", "latest", "--note", "change OPS-42", "--by", "ada")
    assert done.code == 0, done.err
    assert "success" in done.out
    shown = cli.call("status", "latest").out
    assert "approved  by ada, " in shown
    assert "change OPS-42" in shown
    cli.call("run", cli.workflow(ASKS.replace("echo", "false; echo")))
    assert cli.call("approve", "latest", "--json").json_lines[-1]["status"] == "success"


def test_approved_only_it_is_run_by_the_next_who_says_so(cli: Cli) -> None:
    cli.call("run", cli.workflow(ASKS))
    yes = cli.call("approve", "latest", "--no-run", "--by", "ada")
    assert yes.code == 0
    assert "is approved by ada; " in yes.out
    assert "runs it at once" in cli.call("explain", "latest").out
    again = cli.call("approve", "latest", "--by", "bob", "--json")
    assert again.code == 0
    assert again.json_lines[-1]["status"] == "success"
    assert again.json_lines[-1]["approval"]["by"] == "ada", "the first yes stands"


def test_a_run_that_does_not_ask_is_not_approved(cli: Cli) -> None:
    cli.call("run", cli.workflow(GREET))
    refused = cli.call("approve", "latest")
    assert refused.code == 7
    assert cli.call("approve", "no-such-run").code == 5


def test_missing_secrets_are_asked_for_before_the_yes(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.call("run", cli.workflow(f"{ASKS}secrets: [token]\n"))
    refused = cli.call("approve", "latest")
    assert refused.code == 2
    assert "--secret token" in refused.err
    assert cli.call("status", "latest", "--json").json["approval"]["by"] is None
    monkeypatch.setenv("TENURE_SECRET_TOKEN", "hunter2")
    assert cli.call("approve", "latest").code == 0


def test_reconcile_tells_of_those_nobody_approved_in_time(cli: Cli) -> None:
    late = cli.workflow(f"{ASKS[:-2]}, approval_timeout: 1us}}\n")
    run_id = cli.call("run", late, "--json").json["run_id"]
    said = cli.call("reconcile").out
    assert said == f"1 run canceled, not approved in time: {run_id}\n"
    assert cli.call("status", run_id, "--json").json["status"] == "canceled"
    assert cli.call("reconcile", "--json").json["expired"] == []


DEPLOY = """\
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
    run = cli.call("run", cli.workflow(DEPLOY), "--var", f"gate={gate}", "--json")
    assert run.code == 1
    gate.touch()
    run_id: str = run.json_lines[-1]["run_id"]
    return run_id


def hosts_begun(lines: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(line["step"], line["host"]) for line in lines if line.get("type") == "host.running"]


def test_what_is_left_runs_and_the_lineage_is_shown(cli: Cli, failed: str) -> None:
    done = cli.call("retry", failed, "--json", "--run-id", "second-try")
    assert done.code == 0, done.err
    *events, record = done.json_lines
    assert hosts_begun(events) == [("install", "b"), ("restart", "a"), ("restart", "b")]
    assert (record["run_id"], record["retry_of"]) == ("second-try", failed)
    assert record["steps"][1]["hosts"]["b"]["stdout"] == "installed 7\n"
    assert f"retry of  {failed}" in cli.call("status", "second-try").out
    assert cli.call("list", "--json").json["runs"][0]["retry_of"] == failed
    assert cli.call("explain", "second-try").out.endswith(f"(a retry of {failed})\n")
    assert cli.call("explain", "second-try", "--json").json["retry_of"] == failed


def test_it_can_be_narrowed(cli: Cli, failed: str) -> None:
    only = cli.call("retry", failed, "--only-failed", "--json")
    assert hosts_begun(only.json_lines) == [("install", "b"), ("restart", "b")]
    again = cli.call("retry", failed, "--from-step", "install", "--limit", "a", "--json")
    assert hosts_begun(again.json_lines) == [("install", "a"), ("restart", "a")]


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


def test_a_run_with_nothing_left_is_not_retried(cli: Cli, failed: str) -> None:
    assert cli.call("retry", failed).code == 0
    refused = cli.call("retry", "latest", "--json")
    assert refused.code == 7
    assert "every host came through every step" in refused.err
    assert cli.call("retry", "no-such-run").code == 5


def test_what_is_kept_nowhere_is_said_with_the_way_out(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_SECRET_TOKEN", "s3cr3t-value")
    flow = DEPLOY.replace("name: deploy", "name: deploy\nsecrets: [token]").replace(
        "N=7", "N=$token"
    )
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
    assert [step for step, _ in hosts_begun(done.json_lines)].count("fetch") == 2


@pytest.mark.slow
def test_of_several_at_the_same_moment_one_executes(cli: Cli, tmp_path: Path) -> None:
    gate, go = tmp_path / "gate", tmp_path / "go"
    waits = f"while ! test -e {go}; do sleep 0.05; done; echo restarted"
    flow = DEPLOY.replace("echo restarted", waits)
    assert cli.call("run", cli.workflow(flow), "--var", f"gate={gate}").code == 1
    gate.touch()
    old = cli.call("list", "--json").json["runs"][0]["run_id"]
    processes = [cli.start("retry", old, "--json") for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        ends = as_completed([pool.submit(finish, each) for each in processes])
        refused = [each.result() for each in islice(ends, 2)]
        go.touch()
        (went_on,) = [each.result() for each in ends]
    assert [each.code for each in refused] == [7, 7], [each.err for each in refused]
    assert went_on.code == 0, went_on.err
    assert all(" retries it and is " in each.err for each in refused)


FLOW = """\
version: v1
name: deploy
plan: {mode: manual-approve}
steps:
  - name: once
    action: cmd.run
    args: {cmd: 'echo done >> "$once"; echo "N=7" >> "$TENURE_OUTPUT"'}
  - name: hold
    action: script.shell
    args: {src: hold.sh}
"""
HOLD = """\
echo holding
for n in $(seq 1500); do [ -e "$gate" ] && break; sleep 0.02; done
echo "released $N"
"""


@pytest.fixture
def waiting(cli: Cli, tmp_path: Path) -> Path:
    """Where its tasks leave traces; its file is gone as soon as it is submitted."""
    (cli.folder / "hold.sh").write_text(HOLD)
    given = ["--var", f"once={tmp_path / 'once'}", "--var", f"gate={tmp_path / 'gate'}"]
    flow = cli.workflow(FLOW)
    assert cli.call("run", flow, "--run-id", "first-run", *given).code == 7
    (cli.folder / "hold.sh").unlink()
    Path(flow).unlink()
    return tmp_path


def test_of_two_processes_that_approve_at_once_one_runs_it(cli: Cli, waiting: Path) -> None:
    both = [cli.start("approve", "first-run", "--by", name) for name in ("ada", "bob")]
    loser = first_to_end(both)
    (waiting / "gate").touch()
    ended = {process: finish(process) for process in both}
    (winner,) = [process for process in both if process is not loser]
    assert (ended[winner].code, ended[loser].code) == (0, 0), ended
    assert "first-run is approved by" in ended[loser].out
    assert "released 7" in ended[winner].out
    assert (waiting / "once").read_text() == "done\n"
    assert cli.call("status", "first-run", "--json").json["approval"]["by"] in ("ada", "bob")


def first_to_end(processes: list[Popen[str]]) -> Popen[str]:
    """The one that runs it holds until the gate opens."""
    watched = {os.pidfd_open(process.pid): process for process in processes}
    ready, _, _ = select(watched, [], [], 60)
    for descriptor in watched:
        os.close(descriptor)
    return watched[ready[0]]


def test_a_killed_approver_loses_nothing_that_was_done(cli: Cli, waiting: Path) -> None:
    approver = cli.start("approve", "first-run")
    read_until(approver, "holding")
    approver.kill()
    approver.wait()
    (waiting / "gate").touch()
    retried = cli.call("retry", "first-run", "--run-id", "second-run")
    assert retried.code == 7, "it wants an approval of its own"
    assert cli.call("status", "first-run", "--json").json["status"] == "interrupted"
    done = cli.call("approve", "second-run", "--json")
    assert done.code == 0, done.err
    record = done.json_lines[-1]
    assert (record["status"], record["retry_of"]) == ("success", "first-run")
    assert record["steps"][1]["hosts"]["local"]["stdout"] == "holding\nreleased 7\n"
    assert (waiting / "once").read_text() == "done\n", "what had come through did not run again"
