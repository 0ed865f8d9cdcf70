"""Completion as a real bash asks for it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import TENURE, Cli
from tests.cli.flows import GREET

ASK = """
set -eu
eval "$(tenure completion bash)"
COMP_WORDS=($1); [ "${1% }" = "$1" ] || COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_tenure_completion tenure
printf '%s\\n' "${COMPREPLY[@]}"
"""


def offered(line: str) -> list[str]:
    path = f"{Path(TENURE).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", ASK, "bash", line],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.slow
def test_bash_completes_verbs_options_statuses_runs_steps_hosts_and_files(cli: Cli) -> None:
    cli.call("run", cli.workflow(GREET), "-q", "--run-id", "my-run-01")
    (cli.folder / "notes.txt").touch()
    (cli.folder / "deep").mkdir()
    (cli.folder / "deep/other.yml").touch()
    (cli.folder / ".hidden.yaml").touch()
    assert offered("tenure st") == ["status", "store"]
    assert offered("tenure store ") == ["migrate", "check", "prune"]
    assert offered("tenure list --sta") == ["--status"]
    assert offered("tenure list --status f") == ["failed"]
    assert offered("tenure status ") == ["latest", "my-run-01"]
    assert offered("tenure cancel my") == ["my-run-01"]
    assert offered("tenure logs latest h") == ["hello"]
    assert offered("tenure logs latest hello ") == ["a", "b"]
    assert offered("tenure run ") == ["deep/", "flow.yaml"]
    assert offered("tenure validate deep/") == ["deep/other.yml"]
    assert offered("tenure completion ") == ["bash", "zsh", "fish"]


@pytest.mark.slow
def test_completion_is_silent_where_there_is_nothing(cli: Cli) -> None:
    assert offered("tenure status x") == []
    assert not (cli.home / ".local").exists(), "asking must not create a store"
    (cli.folder / "tenure.toml").write_text("broken = [")
    assert offered("tenure status x") == []
    assert offered("tenure run none/") == []


def test_scripts_for_all_shells(cli: Cli) -> None:
    for shell, words in (
        ("bash", "complete -o nosort -F _tenure_completion tenure"),
        ("zsh", "#compdef tenure"),
        ("fish", "complete --no-files --command tenure"),
    ):
        assert words in cli.call("completion", shell).out
        answer = cli.call("completion", shell, "--json").json
        assert answer["shell"] == shell
        assert words in answer["script"]
