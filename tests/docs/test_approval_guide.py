"""The guide's program, with the guide's workflow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.fences import blocks


@pytest.mark.slow
def test_the_program_approves_and_runs(tmp_path: Path) -> None:
    (workflow,), (program,) = blocks("yaml approval"), blocks("python approval")
    (tmp_path / "deploy.yaml").write_text(workflow.body)
    (tmp_path / "program.py").write_text(program.body)
    ended = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (0, "success ada\n"), ended.stderr
