"""``tenure store prune``."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import click

from tenure.cli.arguments import Duration
from tenure.cli.display import json_lines
from tenure.cli.display.paint import say
from tenure.cli.display.text import counted
from tenure.cli.opening import NoRunsYet, settings_for, tending
from tenure.cli.store.powers import pruned
from tenure.cli.verb import json_option, store_option, verb
from tenure.config import Settings

_BATCH = 100


@verb("prune", "tenure store prune --older-than 30d")
@click.option(
    "--older-than",
    type=Duration(),
    required=True,
    metavar="30d",
    help="How long ago a run must have ended to be removed.",
)
@json_option
@store_option
def command(older_than: float, as_json: bool, store: str | None) -> None:
    """Remove runs that ended long ago.

    Each is removed whole: record, journal, output, settled callbacks. Runs that have not ended,
    and runs with a callback still to be sent, are kept. It works in small batches: others who use
    the store hardly notice.
    """
    count = asyncio.run(_prune(settings_for(store), older_than))
    if as_json:
        say(json_lines.as_json({"removed": count, "older_than": older_than}))
    else:
        say(f"{counted(count, 'run')} removed" if count else "no run ended that long ago")


async def _prune(settings: Settings, older_than: float) -> int:
    count = 0
    with suppress(NoRunsYet):
        async with tending(settings) as store:
            retention = pruned(store)
            while removed := await retention.prune_runs(older_than, limit=_BATCH):
                count += removed
    return count
