"""``--limit`` against the inventory, in the words of who typed it."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tenure.workflow.inventory import roster_of
from tenure.workflow.spec import Workflow
from tenure.workflow.wording import did_you_mean, listed


def check_limit(workflow: Workflow, limit: Sequence[str]) -> None:
    """The plan would find it too, and call it a mistake of the workflow."""
    if not limit:
        return
    roster = roster_of(workflow.inventory)
    for name in limit:
        if not roster.knows(name):
            hint = did_you_mean(name, roster.names) or f"there are: {listed(roster.names)}"
            raise click.BadParameter(
                f'there is no host or group "{name[:60]}"; {hint}', param_hint="--limit"
            )
