"""``tenure store``: looking after the place where runs are kept."""

from __future__ import annotations

import click

from tenure.cli.group import LazyGroup

SECTIONS = {
    "Commands": {
        "migrate": "Bring the store's schema to this version of Tenure.",
        "check": "Look for damage and an outdated schema, changing nothing.",
        "prune": "Remove runs that ended long ago.",
    }
}


@click.group(
    "store",
    cls=LazyGroup,
    package="tenure.cli.store",
    sections=SECTIONS,
    examples=("tenure store check", "tenure store prune --older-than 30d"),
)
def command() -> None:
    """Migrate, check and prune the store."""
