"""``tenure callbacks``: what became of the messages that tell others about runs."""

from __future__ import annotations

import click

from tenure.cli.group import LazyGroup

SECTIONS = {
    "Commands": {
        "list": "List callbacks, newest first.",
        "show": "Show one callback: what it says, where it goes, what went wrong.",
        "redeliver": "Send callbacks again, under the same id.",
        "test": "Send a sample callback to a URL and say what came back.",
    }
}


@click.group(
    "callbacks",
    cls=LazyGroup,
    package="tenure.cli.callbacks",
    sections=SECTIONS,
    examples=("tenure callbacks list --state dead", "tenure callbacks redeliver --dead"),
)
def command() -> None:
    """List, show, redeliver and test callbacks."""
