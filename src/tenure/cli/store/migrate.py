"""``tenure store migrate``."""

from __future__ import annotations

import asyncio

from tenure.cli.display import json_lines
from tenure.cli.display.paint import say
from tenure.cli.opening import must_be_able, settings_for, tending
from tenure.cli.store.powers import has_no_schema, migrated, report_lines
from tenure.cli.verb import json_option, store_option, verb
from tenure.config import Settings
from tenure.ports.upkeep import StoreReport, Upkeep


@verb("migrate", "tenure store migrate --store sqlite:///runs.db")
@json_option
@store_option
def command(as_json: bool, store: str | None) -> None:
    """Bring the store's schema to this version of Tenure.

    A store that is not there yet is created; one that is newer than this Tenure is left alone.
    """
    report = asyncio.run(_migrate(settings_for(store)))
    if as_json:
        say(json_lines.as_json(report))
    else:
        say("\n".join(report_lines(report, f"is at schema {report.schema}")))


async def _migrate(settings: Settings) -> StoreReport:
    must_be_able(settings, Upkeep, has_no_schema)
    async with tending(settings, create=True, migrate=True) as store:
        return await migrated(store).migrate_store()
