"""Files of the older runner stay valid and mean the same."""

from __future__ import annotations

import pytest

from tenure.workflow.parse import parse_workflow
from tenure.workflow.spec import PlanMode
from tests.workflow.samples import CATALOGUE, parse
from tests.workflow.whole_files import OLDER


@pytest.mark.parametrize("text", OLDER, ids=["pg-restore", "everywhere"])
def test_a_file_of_the_older_runner_stays_valid(text: str) -> None:
    parsed = parse_workflow(text, CATALOGUE)
    assert not [wanted for wanted in parsed.wanted if wanted.certain]


def test_an_older_file_means_the_same() -> None:
    read = parse(OLDER[0])
    check, restore = read.steps
    assert check.args["export_vars"] == "yes"
    assert check.timeout == 5400
    assert restore.when == "${BACKUP_OK} == true && port >= 5000"
    assert restore.retries.policy.attempts == 3
    assert read.handlers[0].timeout == 0.3
    assert read.plan.mode is PlanMode.MANUAL_APPROVE
