"""The example runs, and it keeps the contract it is meant to show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from examples.custom_store import DocumentStore, KeyValueService, main

from tenure.ports.run_store import RunStateStore
from tenure.testing.contracts import RunStateStoreContract

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_store.py"


class TestContract(RunStateStoreContract):
    @pytest.fixture
    def store(self) -> RunStateStore:
        return DocumentStore(KeyValueService())


async def test_main_tells_its_story(capsys: pytest.CaptureFixture[str]) -> None:
    await main()
    asked, *listed = capsys.readouterr().out.splitlines()
    assert "asked to stop: 'wrong release'" in asked
    assert [line.split() for line in listed] == [
        ["deploy-1.4", "running", "version", "2"],
        ["nightly-backup-1", "canceled", "version", "2"],
    ]


def test_runs_as_a_script() -> None:
    ended = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "nightly-backup-1" in ended.stdout
