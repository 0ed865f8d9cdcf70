"""``tenure gateway``."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable

import click

from tenure.cli.context import settings_for
from tenure.cli.display import json_lines
from tenure.cli.display.text import place_of, say
from tenure.cli.exit_codes import Exit
from tenure.cli.logging import announcer
from tenure.cli.options import broker_option, json_option, store_option, verb
from tenure.cli.serve import check_installed, fronting, listen_options, loop_factory
from tenure.cli.signals import Stopped, stoppable
from tenure.config import Settings
from tenure.system import hide_memory, settle_down


@verb(
    "gateway",
    "tenure gateway --listen 127.0.0.1:8080",
    "tenure gateway --store postgresql://tenure@db/tenure --listen 0.0.0.0:8080",
)
@listen_options
@click.option("-q", "--quiet", is_flag=True, help="Say nothing unless something goes wrong.")
@json_option
@store_option
@broker_option
def command(
    listen: str | None,
    allow_anyone: bool,
    quiet: bool,
    as_json: bool,
    store: str | None,
    broker: str | None,
) -> int:
    """Serve the HTTP API: for people, programs and remote workers.

    Any number of gateways may share a store. Each also sends callbacks and marks abandoned runs.
    Its routes are described at /docs and /openapi.json. Beyond this machine it serves only clients
    with a token; once there is one, it is asked for here too. SIGTERM or Ctrl-C lets answers
    under way end; a second signal stops at once. With --json its address is one object.
    """
    check_installed()
    hide_memory()
    settings = settings_for(store, broker, listen)

    def serves(address: str) -> None:
        if as_json:
            say(json_lines.as_json({"address": address}))
            sys.stdout.flush()
        elif not quiet:
            announcer(settings)(f"serving {place_of(settings.store)} at {address}; Ctrl-C stops")

    settle_down()
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as running:
            running.run(_serve(settings, serves, allow_anyone=allow_anyone))
    except Stopped:
        return Exit.HARD_STOP
    return Exit.SUCCESS


async def _serve(settings: Settings, serves: Callable[[str], None], *, allow_anyone: bool) -> None:
    stop = asyncio.Event()

    async def ask(_: signal.Signals) -> bool:
        stop.set()
        return True

    async def serve() -> None:
        async with fronting(settings, allow_anyone=allow_anyone) as front:
            serves(front.address)
            await stop.wait()

    await stoppable(serve(), ask)
