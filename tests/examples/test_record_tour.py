"""The tour of one run's record, with a worker that freezes and thaws."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.running import User


@pytest.mark.slow
def test_record_tour(user: User, tmp_path: Path) -> None:
    told = user.python("examples/record_tour.py", f"sqlite:///{tmp_path}/tour.db")
    assert "refused, nothing written. LeaseLost: fence 1 < 2" in told
    assert "success at version 6, 1 takeover, 'all restarted'" in told
