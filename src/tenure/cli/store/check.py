"""``tenure store check``."""

from __future__ import annotations

import asyncio

from tenure.cli.display import json_lines
from tenure.cli.display.paint import say
from tenure.cli.exits import Exit
from tenure.cli.opening import reading, settings_for
from tenure.cli.store.powers import checked, report_lines
from tenure.cli.verb import json_option, store_option, verb
from tenure.config import Settings
from tenure.ports.upkeep import StoreReport


@verb("check", "tenure store check", "tenure store check --store sqlite:///runs.db --json")
@json_option
@store_option
def command(as_json: bool, store: str | None) -> int:
    """Look for damage and an outdated schema, changing nothing.

    May take a while on a large store. Exit code 1 if there are problems.
    """
    report = asyncio.run(_check(settings_for(store)))
    if as_json:
        say(json_lines.as_json(report))
    else:
        say("\n".join(report_lines(report)))
    return Exit.FAILED if report.problems else Exit.SUCCESS


async def _check(settings: Settings) -> StoreReport:
    async with reading(settings) as store:
        return await checked(store).check_store()
