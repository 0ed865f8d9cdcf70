"""``tenure callbacks show``."""

from __future__ import annotations

import asyncio

import click

from tenure.cli.callbacks.lines import details
from tenure.cli.callbacks.outbox import outbox_of
from tenure.cli.display import json_lines
from tenure.cli.display.paint import say
from tenure.cli.opening import reading, settings_for
from tenure.cli.verb import completes, json_option, store_option, verb
from tenure.config import Settings
from tenure.model.outbox import Delivery
from tenure.system import SystemClock
from tenure.wire.deliveries import details_of


@verb(
    "show",
    "tenure callbacks show 5f2c9a7e01b4d3861",
    "tenure callbacks show 5f2c9a7e01b4d3861 --json",
)
@click.argument("callback", metavar="ID", shell_complete=completes("callback_ids"))
@json_option
@store_option
def command(callback: str, as_json: bool, store: str | None) -> None:
    """Show one callback: what it says, where it goes, what went wrong.

    ID is the webhook-id its receiver sees; tenure callbacks list has them all. Values of headers
    and credentials in a URL are not shown.
    """
    found = details_of(asyncio.run(_delivery(settings_for(store), callback)))
    if as_json:
        say(json_lines.as_json(found))
        return
    for line in details(found, SystemClock().now()):
        say(line)


async def _delivery(settings: Settings, callback: str) -> Delivery:
    async with reading(settings) as store:
        return await outbox_of(store).get_delivery(callback)
