"""A run's own time-out is one over all its owners, by the times its store stamped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import tenure
from tenure.model.status import RunStatus
from tenure.runtime.resume import time_left

BEGUN = datetime(2030, 1, 1, tzinfo=UTC)


def run(timeout: float | None, age: float | None) -> tenure.RunSnapshot:
    return tenure.RunSnapshot(
        run_id="run-0001",
        workflow_name="deploy",
        status=RunStatus.RUNNING,
        timeout=timeout,
        started_at=None if age is None else BEGUN,
        updated_at=BEGUN + timedelta(seconds=age or 0),
    )


@pytest.mark.parametrize(
    ("timeout", "age", "left"), [(None, 5, None), (60, None, 60), (60, 0, 60), (60, 45, 15)]
)
def test_what_earlier_owners_used_is_gone(
    timeout: float | None, age: float | None, left: float | None
) -> None:
    assert time_left(run(timeout, age)) == left


def test_one_whose_time_is_over_ends_at_once() -> None:
    left = time_left(run(60, 61))
    assert left is not None
    assert 0 < left < 0.01
