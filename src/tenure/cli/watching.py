"""Watching a run to its end, as a command does: the view, Ctrl-C, the exit code."""

from __future__ import annotations

import asyncio

from tenure.cli.display.paint import note
from tenure.cli.display.places import place_of
from tenure.cli.exits import Exit
from tenure.cli.following import follow
from tenure.cli.opening import meant_run, reading
from tenure.cli.stopping import Stopped, stoppable
from tenure.cli.viewing import View, conclude, showing, style_of
from tenure.config import Settings
from tenure.model.snapshot import RunSnapshot
from tenure.system import proven_dead


def watch(settings: Settings, word: str, stopped: str, *, as_json: bool) -> int:
    """The exit code is the run's. ``stopped`` is said if somebody no longer wants to watch."""
    style = style_of(as_json=as_json, quiet=False)
    place = f"store {place_of(settings.store)}"
    try:
        with showing(style, place) as view:
            run = asyncio.run(_watch(settings, word, view))
    except Stopped:
        note(stopped)
        return Exit.HARD_STOP
    return conclude(run, style, place)


async def _watch(settings: Settings, word: str, view: View) -> RunSnapshot:
    async with reading(settings) as store:
        run_id = await meant_run(store, word)
        interval = settings.control_interval
        return await stoppable(follow(store, run_id, view, interval, proven_dead))
