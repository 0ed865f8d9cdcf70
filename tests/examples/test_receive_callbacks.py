"""A receiver of callbacks, as the example shows it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest
from examples.receive_callbacks import Board, NotOurs, verified

from tests.examples.running import EXAMPLES, User

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
    flow.write_text(FLOW.replace("URL", url).replace("COMMAND", "true"))
    assert user.tenure("run", str(flow), "-q").returncode == 0
    newest = user.tenure("callbacks", "list").stdout.splitlines()[1].split()[0]
    assert user.tenure("callbacks", "redeliver", newest).returncode == 0
    flow.write_text(FLOW.replace("URL", url).replace("COMMAND", "exit 3"))
    assert user.tenure("run", str(flow), "-q").returncode == 1
    assert user.tenure("callbacks", "test", url).returncode == 1
    said = [receiver.stdout.readline().strip() for _ in range(6)]
    assert said == [
        "deploy run.running",
        "deploy run.success",
        "had it already",
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
