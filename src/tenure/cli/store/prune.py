"""``tenure store prune``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import click

from tenure.cli.arguments import Duration, Whole
from tenure.cli.display import json_lines
from tenure.cli.display.paint import note, say
from tenure.cli.display.text import counted
from tenure.cli.opening import NoRunsYet, settings_for, tending
from tenure.cli.store.powers import pruned
from tenure.cli.verb import json_option, store_option, verb
from tenure.config import Settings
from tenure.runtime.retention_limits import MOST_PER_SECOND

TELL_EVERY = 5.0
"""Seconds between two words about how far it is."""


@verb(
    "prune",
    "tenure store prune --older-than 30d",
    "tenure store prune --older-than 30d --rate 1000",
)
@click.option(
    "--older-than",
    type=Duration(),
    required=True,
    metavar="30d",
    help="How long ago a run must have ended to be removed, by the store's clock.",
)
@click.option(
    "--rate",
    type=Whole(1, MOST_PER_SECOND),
    metavar="N",
    help="Runs to remove in a second, at most; without it, the setting prune_rate.",
)
@json_option
@store_option
def command(older_than: float, rate: int | None, as_json: bool, store: str | None) -> None:
    """Remove runs that ended long ago.

    Each is removed whole: record, journal, output, settled callbacks. Runs that have not ended,
    and runs with a callback still to be sent, are kept. It works in small batches and no faster
    than --rate: other users of the store hardly notice. It may be stopped at any time; what is left
    is removed by the next.
    """
    settings = settings_for(store)
    count = asyncio.run(_prune(settings, older_than, rate or settings.prune_rate))
    if as_json:
        say(json_lines.as_json({"removed": count, "older_than": older_than}))
    else:
        say(f"{counted(count, 'run')} removed" if count else "no run ended that long ago")


async def _prune(settings: Settings, older_than: float, rate: int) -> int:
    from tenure.runtime.retention import PruneRate, remove_old

    with suppress(NoRunsYet):
        async with tending(settings) as store:
            return await remove_old(pruned(store), older_than, PruneRate(rate), _telling())
    return 0


def _telling() -> Callable[[int], None]:
    """How far it is, now and then: a million runs take hours."""
    now = asyncio.get_running_loop().time
    told_at = now()

    def tell(count: int) -> None:
        nonlocal told_at
        if now() - told_at >= TELL_EVERY:
            told_at = now()
            note(f"{counted(count, 'run')} removed so far")

    return tell
