"""What a task can get from the process that executes it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cli.conftest import Cli, finish

pytestmark = pytest.mark.slow

ENVIRONMENT = """\
version: v1
name: environment
secrets: [token]
vars: {greeting: hello}
steps:
  - {name: all, action: cmd.run, args: {cmd: env, env: {GIVEN: by-the-step}}}
"""


@pytest.fixture(autouse=True)
def surroundings(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_POLL_INTERVAL", "0.05s")
    monkeypatch.setenv("TENURE_SECRET_TOKEN", "opensesame")
    monkeypatch.setenv("PGPASSWORD", "of-the-store")
    monkeypatch.setenv("CLOUD_KEY", "of-the-cloud")
    monkeypatch.setenv("CLOUD_NAME", "a cloud")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("https_proxy", "http://proxy:3128")


@contextmanager
def serving(cli: Cli, *command: str) -> Iterator[subprocess.Popen[str]]:
    process = cli.start(*command)
    yield process
    process.terminate()
    finish(process)


def seen_by_a_task(cli: Cli, *command: str) -> dict[str, str]:
    """What a task of a run sees that was queued for this command."""
    with serving(cli, *command):
        done = cli.call("submit", cli.workflow(ENVIRONMENT), "--wait")
    assert done.code == 0, done
    return environment_in(cli.call("logs", "latest").out)


def environment_in(text: str) -> dict[str, str]:
    lines = [line.rpartition("| ")[2] for line in text.splitlines() if "=" in line]
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


@pytest.mark.parametrize("command", [("worker",), ("up", "--no-gateway")])
def test_a_task_gets_the_usual_variables_and_those_of_its_workflow(
    cli: Cli, command: tuple[str, ...]
) -> None:
    seen = seen_by_a_task(cli, *command)
    assert {"PATH", "HOME", "LC_TIME", "https_proxy", "TENURE_RUN_ID", "TENURE_OUTPUT"} <= set(seen)
    assert (seen["GIVEN"], seen["greeting"]) == ("by-the-step", "hello")
    assert "token" in seen
    assert not {"PGPASSWORD", "CLOUD_KEY", "CLOUD_NAME", "TENURE_SECRET_TOKEN"} & set(seen)


def test_settings_name_further_variables(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_PASS_ENV", "CLOUD_*, EDITOR")
    seen = seen_by_a_task(cli, "worker")
    assert (seen["CLOUD_KEY"], seen["CLOUD_NAME"]) == ("of-the-cloud", "a cloud")
    assert "PGPASSWORD" not in seen


def test_a_task_inherits_all_where_that_is_wanted(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_INHERIT_ENV", "true")
    seen = seen_by_a_task(cli, "worker")
    assert seen["PGPASSWORD"] == "of-the-store"
    assert "TENURE_SECRET_TOKEN" not in seen


def test_run_lets_its_tasks_inherit_as_a_shell_would(cli: Cli) -> None:
    done = cli.call("run", cli.workflow(ENVIRONMENT))
    assert done.code == 0
    seen = environment_in(cli.call("logs", "latest").out)
    assert seen["PGPASSWORD"] == "of-the-store"
    assert "TENURE_SECRET_TOKEN" not in seen
