"""``tenure callbacks list``."""

from __future__ import annotations

import asyncio

import click

from tenure.cli.callbacks.lines import table
from tenure.cli.callbacks.outbox import outbox_of, run_with_callbacks
from tenure.cli.display import json_lines
from tenure.cli.display.paint import note, say
from tenure.cli.display.places import place_of
from tenure.cli.opening import NoRunsYet, reading, settings_for
from tenure.cli.verb import completes, json_option, page_options, store_option, verb
from tenure.config import Settings
from tenure.model.outbox import Delivery
from tenure.model.query import Page
from tenure.model.status import DeliveryState
from tenure.system import SystemClock
from tenure.wire.deliveries import summary_of


@verb(
    "list",
    "tenure callbacks list --state dead",
    "tenure callbacks list --run latest --json",
)
@click.option(
    "--state",
    type=click.Choice([str(state) for state in DeliveryState]),
    help="Only those that wait, were delivered, or were given up.",
)
@click.option(
    "--run",
    "run",
    metavar="RUN",
    shell_complete=completes("run_ids"),
    help="Only those of one run; latest is the newest.",
)
@page_options
@json_option
@store_option
def command(
    state: str | None,
    run: str | None,
    limit: int,
    cursor: str | None,
    as_json: bool,
    store: str | None,
) -> None:
    """List callbacks, newest first.

    One that waits is sent by the next command that executes or changes runs, in order and as its
    time has come. One that is dead was refused by its target or tried too often: look at it with
    tenure callbacks show, send it again with tenure callbacks redeliver.
    """
    settings = settings_for(store)
    wanted = None if state is None else DeliveryState(state)
    page = asyncio.run(_page(settings, wanted, run, limit, cursor))
    found = [summary_of(delivery) for delivery in page.items]
    if as_json:
        say(json_lines.as_json({"callbacks": found, "cursor": page.cursor}))
    elif not found:
        filtered = state is not None or run is not None
        which = "no such callback" if filtered else "no callbacks"
        note(f"{which} in {place_of(settings.store)}")
    else:
        for line in table(found, SystemClock().now(), of_one_run=run is not None):
            say(line)
        if page.cursor is not None:
            note(f"there are more: --cursor {page.cursor}")


async def _page(
    settings: Settings,
    state: DeliveryState | None,
    word: str | None,
    limit: int,
    cursor: str | None,
) -> Page[Delivery]:
    try:
        async with reading(settings) as store:
            outbox = outbox_of(store)
            run_id = await run_with_callbacks(store, word)
            return await outbox.list_deliveries(
                state=state, run_id=run_id, limit=limit, cursor=cursor
            )
    except NoRunsYet:
        return Page(items=())
