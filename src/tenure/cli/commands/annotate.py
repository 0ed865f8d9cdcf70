"""``tenure annotate``."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from tenure.cli.arguments import values
from tenure.cli.context import meant_run, open_to_change, settings_for, this_user
from tenure.cli.display import json_lines
from tenure.cli.display.text import bold, say
from tenure.cli.options import json_option, run_argument, store_option, verb


@verb(
    "annotate",
    "tenure annotate latest ticket=OPS-42 outage:=true",
    "tenure annotate 01JCQ5T4Y9K3V8M2N6P7R1S0WX verdict=harmless --by reviewer",
)
@run_argument
@click.argument("facts", metavar="KEY=VALUE...", nargs=-1, required=True)
@click.option("--by", metavar="NAME", help="The author of the note.  [default: you]")
@json_option
@store_option
def command(
    run_id: str, facts: tuple[str, ...], by: str | None, as_json: bool, store: str | None
) -> None:
    """Add a note to a run.

    Also to a run that has ended; its status is never touched. KEY=TEXT, or KEY:=JSON for numbers,
    lists and so on.
    """
    asyncio.run(_annotate(run_id, values(facts, "KEY=VALUE"), by or this_user(), as_json, store))


async def _annotate(
    word: str, facts: dict[str, Any], by: str, as_json: bool, store: str | None
) -> None:
    async with open_to_change(settings_for(store)) as runner:
        run = await runner.annotate(await meant_run(runner, word), facts, by=by)
    if as_json:
        say(json_lines.as_json(run))
    else:
        count = len(run.annotations)
        say(f"{bold(run.run_id)} noted; {count} annotation{'s' * (count != 1)} now")
