"""``tenure gateway``."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import click

from tenure.cli.context import settings_for
from tenure.cli.display import json_lines
from tenure.cli.display.text import place_of, say
from tenure.cli.exit_codes import Exit
from tenure.cli.logging import announcer
from tenure.cli.options import broker_option, json_option, store_option, verb
from tenure.cli.serve import (
    Entry,
    ServedGateway,
    check_installed,
    fronting,
    listen_options,
    loop_factory,
)
from tenure.cli.signals import Stopped, stoppable
from tenure.config import Settings
from tenure.system import hide_memory, settle_down


@verb(
    "gateway",
    "tenure gateway --listen 127.0.0.1:8080",
    "tenure gateway --store postgresql://tenure@db/tenure --listen 0.0.0.0:8080",
)
@listen_options
@click.option("-q", "--quiet", is_flag=True, help="Print nothing unless something goes wrong.")
@json_option
@store_option
@broker_option
def command(
    listen: str | None,
    no_token: bool,
    token_file: Path | None,
    quiet: bool,
    as_json: bool,
    store: str | None,
    broker: str | None,
) -> int:
    """Serve the HTTP API: for people, programs and remote workers.

    Any number of gateways may share a store. Each also sends callbacks and marks abandoned runs.
    Its routes are described at /docs and /openapi.json. Every client needs a token: if the store
    has none, an admin token is made, and the file it is in is named. SIGTERM or Ctrl-C lets answers
    in progress end; a second signal stops at once. With --json its address is one object.
    """
    check_installed()
    hide_memory()
    settings = settings_for(store, broker, listen)

    def serves(front: ServedGateway) -> None:
        if as_json:
            path = None if front.token is None else str(front.token.path)
            say(json_lines.as_json({"address": front.address, "token_file": path}))
            sys.stdout.flush()
        elif not quiet:
            announcer(settings)(f"serving {place_of(settings.store)} at {front.told}; Ctrl-C stops")

    settle_down()
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as running:
            running.run(_serve(settings, Entry.of(no_token, token_file), serves))
    except Stopped:
        return Exit.HARD_STOP
    return Exit.SUCCESS


async def _serve(settings: Settings, entry: Entry, serves: Callable[[ServedGateway], None]) -> None:
    stop = asyncio.Event()

    async def ask(_: signal.Signals) -> bool:
        stop.set()
        return True

    async def serve() -> None:
        async with fronting(settings, entry) as front:
            serves(front)
            await stop.wait()

    await stoppable(serve(), ask)
