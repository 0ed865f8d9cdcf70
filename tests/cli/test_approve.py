"""``tenure approve``, and ``tenure run`` of what asks for it."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli
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


def test_as_json_the_record_says_it(cli: Cli) -> None:
    said = cli.call("run", cli.workflow(f"{ASKS[:-2]}, approval_timeout: 1h}}\n"), "--json")
    assert said.code == 7
    assert said.json["status"] == "queued"
    assert said.json["approval"]["required"] is True
    assert said.json["approval"]["expires_at"] is not None


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


def test_a_run_approved_from_the_start_does_not_wait(cli: Cli) -> None:
    done = cli.call("run", cli.workflow(ASKS), "--approve", "--json")
    assert done.code == 0
    assert done.json_lines[-1]["approval"]["by"]


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


def test_no_is_said_by_canceling(cli: Cli) -> None:
    cli.call("run", cli.workflow(ASKS))
    assert cli.call("cancel", "latest", "--reason", "not today").code == 0
    refused = cli.call("approve", "latest", "--json")
    assert refused.code == 7
    assert "ended as canceled" in refused.err


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
