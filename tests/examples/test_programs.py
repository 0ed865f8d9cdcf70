"""The example programs run, and do what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from examples.receive_callbacks import Board, NotOurs, verified

from tests.examples.running import EXAMPLES, User, printed, told

# Actions of one's own, as the example shows them.


@pytest.mark.slow
def test_custom_action(user: User) -> None:
    assert user.python("examples/custom_action.py").splitlines() == [
        "lamp: success",
        "  reserve shop1 success {'LEFT': 10}",
        "  serve shop1 success started: till on shop1",
        "  serve shop2 success started: till on shop2",
        "chair: failed (step 'reserve' failed on shop1: LookupError: only 1 of chair left)",
        "  reserve shop1 failed LookupError: only 1 of chair left",
        "  serve shop1 skipped",
        "  serve shop2 skipped",
        "a mistake is found before anything runs:",
        "  sell.yaml:15:31: steps[1].args.state: must be one of started, stopped, not 'stared'; "
        "did you mean 'started'?",
    ]


# An application with its own store, notifier and recorder around Tenure.


@pytest.mark.slow
def test_embed_in_application(user: User) -> None:
    assert user.python("-m", "examples.embed_in_application").splitlines() == [
        "order-1001: success: to ada, receipt R-ada-4500",
        "order-1002: failed: step 'charge' failed on local: "
        "PermissionError: bob's card was declined",
        "the button was pressed twice: run order-1001: this run_id is taken; "
        "choose another or leave it out",
        "bob's orders: [('order-1002', 'failed')]",
        "the page of order-1001 says: success",
        "the page of order-1002 says: failed",
        "the audit log of order-1001:",
        "  order-1001 1.0 run.queued",
        "  order-1001 1.1 run.running",
        "  order-1001 1.2 step.running charge",
        "  order-1001 1.3 host.running charge local",
        "  order-1001 2.0 host.success charge local",
        "  order-1001 2.1 step.success charge",
        "  order-1001 2.2 step.running label",
        "  order-1001 2.3 host.running label local",
        "  order-1001 3.0 host.success label local",
        "  order-1001 3.1 step.success label",
        "  order-1001 3.2 run.success",
    ]


# The example with a template: foreseen, written, and left alone when nothing has changed.


RENDER = "examples/render_config.yaml"


@pytest.mark.slow
def test_render_config(user: User, tmp_path: Path) -> None:
    given = ("--var", f"folder={tmp_path}/hosts")
    site = tmp_path / "hosts" / "web2" / "site.conf"

    planned = user.tenure("plan", RENDER, *given)
    assert (planned.returncode, planned.stderr) == (0, "")
    assert "+    server app2.south:8002 backup;" in planned.stdout
    assert not site.exists()

    first = user.tenure("run", RENDER, *given)
    assert first.returncode == 0, first.stdout + first.stderr
    assert printed(first.stdout)["configuration web2"] == [f"wrote {site}, 116 bytes"]
    assert printed(first.stdout)["reload web2"] == ["reloaded web2"]
    assert (site.stat().st_mode & 0o777, site.read_text().splitlines()[:2]) == (
        0o640,
        ["# Shop, south", "worker_processes 4;"],
    )

    again = user.tenure("run", RENDER, *given)
    assert printed(again.stdout).keys() == {"healthy web1", "healthy web2"}
    record = json.loads(user.tenure("status", "latest", "--json").stdout)
    assert [step["hosts"]["web1"]["changed"] for step in record["steps"]] == [False, False, None]

    planned = user.tenure("plan", RENDER, *given, "--var", "workers=8")
    assert "-worker_processes 4;\n      +worker_processes 8;" in planned.stdout


# The example of a rolling deploy: batch after batch, and no further than its budget.


ROLLING = "examples/rolling_deploy.yaml"


def hosts_of(user: User, step: str) -> dict[str, Any]:
    record = json.loads(user.tenure("status", "latest", "--json").stdout)
    (found,) = [each for each in record["steps"] if each["name"] == step]
    return dict(found["hosts"])


@pytest.mark.slow
def test_rolling_deploy_within_its_budget(user: User) -> None:
    ended = user.tenure("run", ROLLING)
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = told(ended.stdout)
    failed = lines.index("release web3 failed exit 1: no answer on port 80")
    assert lines.index("rejoin web2 success") < lines.index("release web4 | installing 1.4")
    assert failed < lines.index("rejoin web4 success")
    assert lines.index("rejoin web4 success") < lines.index("release web5 | installing 1.4")
    said = printed(ended.stdout)
    assert said["rejoin web4"] == ["web4 takes requests again"]
    assert "rejoin web3" not in said
    assert said["announce web1"] == ["release 1.4 is out"]
    hosts = hosts_of(user, "release")
    assert {name: host["status"] for name, host in hosts.items()} == {
        **dict.fromkeys(("web1", "web2", "web4", "web5"), "success"),
        "web3": "failed",
        "web6": "unreachable",
    }
    assert (hosts["web3"]["attempts"], hosts["web4"]["attempts"]) == (2, 1)


@pytest.mark.slow
def test_rolling_deploy_beyond_its_budget(user: User) -> None:
    ended = user.tenure("run", ROLLING, "--var", "broken=web2 web3")
    assert ended.returncode == 1
    assert {name: host["status"] for name, host in hosts_of(user, "release").items()} == {
        "web1": "success",
        "web2": "failed",
        "web3": "failed",
        "web4": "success",
        "web5": "skipped",
        "web6": "skipped",
    }
    assert {host["status"] for host in hosts_of(user, "announce").values()} == {"skipped"}


# A receiver of callbacks, as the example shows it.


SECRET = "whsec_dGhpcnR5LXR3byBieXRlcyBub2JvZHkgZ3Vlc3NlZCE="

FLOW = """
version: v1
name: deploy
callbacks: [{url: "URL", secret_env: TENURE_HOOK_SHOP}]
steps:
  - {name: restart, action: cmd.run, args: {cmd: "COMMAND"}}
"""


@pytest.fixture
def receiver(user: User) -> Iterator[subprocess.Popen[str]]:
    user.environment["TENURE_HOOK_SHOP"] = SECRET
    user.environment["TENURE_CALLBACK_ALLOW_PRIVATE"] = "true"
    process = subprocess.Popen(
        [sys.executable, "-W", "error", str(EXAMPLES / "receive_callbacks.py"), "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=user.environment,
    )
    yield process
    process.kill()
    process.communicate()


@pytest.mark.slow
def test_receive_callbacks(user: User, receiver: subprocess.Popen[str], tmp_path: Path) -> None:
    assert receiver.stdout is not None
    url = receiver.stdout.readline().split()[-1]
    flow = tmp_path / "deploy.yaml"
    user.environment["TENURE_HOOKS"] = f"SHOP={url}"
    flow.write_text(FLOW.replace("URL", url).replace("COMMAND", "true"))
    assert user.tenure("run", str(flow), "-q").returncode == 0
    newest = user.tenure("callbacks", "list").stdout.splitlines()[1].split()[0]
    assert user.tenure("callbacks", "redeliver", newest).returncode == 0
    flow.write_text(FLOW.replace("URL", url).replace("COMMAND", "exit 3"))
    assert user.tenure("run", str(flow), "-q").returncode == 1
    assert user.tenure("callbacks", "test", url).returncode == 1
    said = [receiver.stdout.readline().strip() for _ in range(8)]
    assert said == [
        "deploy run.queued",
        "deploy run.running",
        "deploy run.success",
        "had it already",
        "deploy run.queued",
        "deploy run.running",
        "deploy run.failed: step 'restart' failed on local: exit 3",
        "refused: not signed with our secret",
    ]


def test_what_is_old_news_does_not_replace_what_is_newer() -> None:
    board = Board()
    said = {"run_id": "run-00001", "workflow_name": "deploy", "error": None}
    running = {**said, "type": "run.running", "version": 1, "seq": 0}
    success = {**said, "type": "run.success", "version": 2, "seq": 3}
    assert board.take("b", success) == "deploy run.success"
    assert board.take("a", running) == "an old story"
    assert board.take("a", running) == "had it already"


@pytest.mark.parametrize("sent_at", ["", "soon", "1", "99999999999"])
def test_what_was_not_sent_lately_is_refused(sent_at: str) -> None:
    headers = Message()
    headers["webhook-timestamp"] = sent_at
    with pytest.raises(NotOurs, match="too old"):
        verified(headers, b"{}", SECRET)


# The tour of one run's record, with a worker that freezes and thaws.


@pytest.mark.slow
def test_record_tour(user: User, tmp_path: Path) -> None:
    told = user.python("examples/record_tour.py", f"sqlite:///{tmp_path}/tour.db")
    assert "refused, nothing written. LeaseLost: fence 1 < 2" in told
    assert "success at version 6, 1 takeover, 'all restarted'" in told
