"""``tenure token``: who may come through the gateway."""

from __future__ import annotations

import click

from tenure.cli.group import LazyGroup

SECTIONS = {
    "Commands": {
        "create": "Create a token, and show it once.",
        "list": "List tokens, oldest first.",
        "revoke": "Revoke a token: every gateway refuses it from now on.",
    }
}


@click.group(
    "token",
    cls=LazyGroup,
    package="tenure.cli.token",
    sections=SECTIONS,
    examples=("tenure token create ci --role operator", "tenure token list"),
)
def command() -> None:
    """Create, list and revoke tokens for the gateway."""
