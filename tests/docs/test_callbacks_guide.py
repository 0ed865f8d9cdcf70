"""The receivers of the callbacks guide take what real runs send, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks

import tenure
from tests.docs.fences import blocks
from tests.notifiers.deliveries import SECRET
from tests.notifiers.receiver import Received, Receiver

TENURE = str(Path(sys.executable).with_name("tenure"))


def snippet(info: str) -> str:
    [block] = blocks(info)
    return block.body


def workflow(url: str) -> str:
    return snippet("yaml callback").replace("http://127.0.0.1:8000/", url)


def node() -> str:
    found = shutil.which("node", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert found, "to check the guide's receiver in Node, Node 18 or newer must be on the PATH"
    return found


# -- the receivers --------------------------------------------------------------------------------


class Listening:
    """A receiver of the guide, as a reader would start it."""

    def __init__(self, process: subprocess.Popen[str], port: str, home: Path) -> None:
        self._process = process
        self._home = home
        self.url = f"http://127.0.0.1:{port}/"

    def line(self) -> list[str]:
        assert self._process.stdout is not None
        return self._process.stdout.readline().split()

    def tenure(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command, where the same secret is set."""
        return subprocess.run(
            [TENURE, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=self._home,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self._home),
                "TENURE_HOOK_SHOP": SECRET,
                "TENURE_HOOKS": f"SHOP={self.url}",
                "TENURE_CALLBACK_ALLOW_PRIVATE": "true",
            },
        )


@contextmanager
def listening(home: Path, *command: str) -> Iterator[Listening]:
    environment = {"PATH": os.environ["PATH"], "PORT": "0", "TENURE_HOOK_SHOP": SECRET}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        *words, port = process.stdout.readline().split()
        assert words == ["listening", "on", "port"]
        yield Listening(process, port, home)
    finally:
        process.kill()
        process.communicate()


SLOW_MACHINE = "callbacks are being sent; Ctrl-C ends the wait for them\n"


@pytest.fixture(params=["python", "javascript"])
def receiver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listening]:
    suffix, program = {"python": (".py", sys.executable), "javascript": (".mjs", node())}[
        request.param
    ]
    path = (tmp_path / "receiver").with_suffix(suffix)
    path.write_text(snippet(f"{request.param} receiver"))
    with listening(tmp_path, program, str(path)) as started:
        yield started


@pytest.mark.slow
def test_a_receiver_of_the_guide_takes_each_callback_once_and_no_forged_one(
    receiver: Listening, tmp_path: Path
) -> None:
    (tmp_path / "deploy.yaml").write_text(workflow(receiver.url))
    for run_id in ("run-00001", "run-00002"):
        ran = receiver.tenure("run", "deploy.yaml", "--run-id", run_id, "-q")
        assert ran.returncode == 0
        assert ran.stderr in ("", SLOW_MACHINE)
        told = [receiver.line()[:2] for _ in range(5)]
        assert told == [
            ["run.queued", run_id],
            ["run.running", run_id],
            ["step.running", run_id],
            ["step.success", run_id],
            ["run.success", run_id],
        ]
        listed = receiver.tenure("callbacks", "list").stdout
        first = listed.splitlines()[1].split()[0]
        again = receiver.tenure("callbacks", "redeliver", first)
        assert again.returncode == 0, again.stdout  # and the next line is that of the next run
    failing = workflow(receiver.url).replace("echo restarted", "echo no space left >&2; exit 3")
    (tmp_path / "deploy.yaml").write_text(failing)
    assert receiver.tenure("run", "deploy.yaml", "-q").returncode == 1
    last = [receiver.line() for _ in range(5)][-1]
    assert last[0] == "run.failed"
    assert last[-3:] == ["no", "space", "left"]
    unsigned = receiver.tenure("callbacks", "test", receiver.url)
    assert unsigned.returncode == 1
    assert "401" in unsigned.stdout
    signed = receiver.tenure("callbacks", "test", receiver.url, "--secret-env", "TENURE_HOOK_SHOP")
    assert signed.returncode == 0, signed.stdout


# -- checking one that was saved ------------------------------------------------------------------


@pytest.fixture
async def saved(monkeypatch: pytest.MonkeyPatch) -> Received:
    """What a run of the guide's workflow sent."""
    monkeypatch.setenv("TENURE_HOOK_SHOP", SECRET)
    callbacks = tenure.CallbackSettings(allow_private=True)
    async with Receiver() as receiver:
        async with tenure.Runner(tenure.InMemoryStore(), callbacks=callbacks) as runner:
            await runner.run(tenure.read_workflow(workflow(receiver.url("ok"))))
        return (await receiver.got(4))[-1]


def in_a_shell(got: Received, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "body.json").write_bytes(got.body)
    environment = {
        "PATH": os.environ["PATH"],
        "TENURE_HOOK_SHOP": SECRET,
        "id": got.headers["webhook-id"],
        "timestamp": got.headers["webhook-timestamp"],
        "signature": got.headers["webhook-signature"],
    }
    return subprocess.run(
        ["/bin/sh", "-e", "-c", snippet("sh verify")],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
    )


def test_the_shell_tells_ours_from_others(saved: Received, tmp_path: Path) -> None:
    ours = in_a_shell(saved, tmp_path)
    assert (ours.returncode, ours.stderr) == (0, "")
    assert ours.stdout.startswith("ours, ")
    other = in_a_shell(saved._replace(body=saved.body + b" "), tmp_path)
    assert (other.returncode, other.stdout) == (1, "not ours\n")


def test_the_library_tells_ours_from_others(saved: Received) -> None:
    def verify(body: bytes) -> Any:
        known = {"secret": SECRET, "body": body, "headers": saved.headers}
        exec(snippet("python library"), known)
        return known["said"]

    assert verify(saved.body) == saved.json
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        verify(saved.body + b" ")
