"""The command as a person meets it first."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tenure

pytestmark = pytest.mark.slow

TENURE = str(Path(sys.executable).with_name("tenure"))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TENURE, *arguments], capture_output=True, text=True)


def test_version_option() -> None:
    assert run("--version").stdout == f"tenure {tenure.__version__}\n"


def test_command_is_found_by_its_package_too() -> None:
    """Also with verbs, errors and exit codes: it is the same command."""

    def by_package(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tenure", *arguments], capture_output=True, text=True
        )

    assert by_package("--version").stdout == f"tenure {tenure.__version__}\n"
    for arguments in (["--help"], ["no-such-verb"]):
        answer, expected = by_package(*arguments), run(*arguments)
        assert (answer.returncode, answer.stdout, answer.stderr) == (
            expected.returncode,
            expected.stdout,
            expected.stderr,
        )


def test_version_as_json() -> None:
    facts = json.loads(run("version", "--json").stdout)
    assert facts["tenure"] == tenure.__version__
    assert {"python", "sqlite"} <= facts.keys()


def test_help_names_the_commands_and_an_example() -> None:
    for arguments in (["--help"], ["-h"], ["version", "--help"]):
        shown = run(*arguments)
        assert shown.returncode == 0
        assert "Example" in shown.stdout
    assert "version" in run("--help").stdout


def test_unknown_command_is_a_usage_error() -> None:
    refused = run("sing")
    assert refused.returncode == 2
    assert "sing" in refused.stderr
