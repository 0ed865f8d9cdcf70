"""``tenure watch``."""

from __future__ import annotations

import asyncio

from tenure.cli.display.paint import note
from tenure.cli.display.places import place_of
from tenure.cli.exits import Exit
from tenure.cli.following import follow
from tenure.cli.opening import meant_run, reading, settings_for
from tenure.cli.stopping import Stopped, stoppable
from tenure.cli.verb import json_option, run_argument, store_option, verb
from tenure.cli.viewing import View, conclude, showing, style_of
from tenure.config import Settings
from tenure.model.snapshot import RunSnapshot
from tenure.system import proven_dead


@verb("watch", "tenure watch latest", "tenure watch 01JCQ5T4Y9K3V8M2N6P7R1S0WX --json")
@run_argument
@json_option
@store_option
def command(run_id: str, as_json: bool, store: str | None) -> int:
    """Follow a run that another process executes.

    The same view as that of tenure run, with its history. With --json one line per event, and a
    last line with the final record. Ctrl-C stops watching; the run goes on. The exit code is that
    of the run: 0 success, 1 failed, 3 canceled, 4 interrupted. A run whose process is gone, and
    that no other will continue, counts as interrupted; tenure reconcile writes that down.
    """
    settings = settings_for(store)
    style = style_of(as_json=as_json, quiet=False)
    place = f"store {place_of(settings.store)}"
    try:
        with showing(style, place) as view:
            run = asyncio.run(_watch(settings, run_id, view))
    except Stopped:
        note("stopped watching; the run is as it was")
        return Exit.HARD_STOP
    return conclude(run, style, place)


async def _watch(settings: Settings, word: str, view: View) -> RunSnapshot:
    async with reading(settings) as store:
        run_id = await meant_run(store, word)
        interval = settings.control_interval
        return await stoppable(follow(store, run_id, view, interval, proven_dead))
