"""Runs in which something failed, for those who go on with them."""

from __future__ import annotations

from typing import Any

import tenure
from tenure.model.snapshot import RunSnapshot
from tests.runtime.puppets import BROKEN, Puppet, step, workflow

HOSTS = ("a", "b", "c")


THREE = workflow(step("one"), step("two"), step("three"), hosts=HOSTS)


async def failing(
    runner: tenure.Runner, act: Puppet, played: tenure.Workflow, *labels: str, **options: Any
) -> RunSnapshot:
    """A run in which these fail; afterwards nothing does."""
    act.results |= dict.fromkeys(labels, BROKEN)
    run = await runner.run(played, tenure.RunOptions(**options))
    for label in labels:
        del act.results[label]
    act.begun.clear()
    return run
