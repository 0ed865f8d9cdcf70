"""Watching a run to its end, as a command does: the view, Ctrl-C, the exit code."""

from __future__ import annotations

import asyncio
from functools import partial

from tenure.cli.display.paint import note
from tenure.cli.display.places import place_of
from tenure.cli.display.text import neutral
from tenure.cli.exits import Exit
from tenure.cli.following import follow
from tenure.cli.opening import meant_run, reading
from tenure.cli.stopping import Stopped, stoppable
from tenure.cli.viewing import View, conclude, showing, style_of
from tenure.config import Settings
from tenure.model.snapshot import RunSnapshot
from tenure.ports.run_store import RunStateStore
from tenure.runtime.queries import explain_as_read
from tenure.system import SystemClock, presence, proven_dead


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
        explain = partial(_explain, store)
        return await stoppable(follow(store, run_id, view, interval, proven_dead, explain))


async def _explain(store: RunStateStore, run: RunSnapshot) -> str:
    """As ``tenure explain`` does."""
    now = SystemClock().now()
    return neutral((await explain_as_read(store, run, now=now, presence=presence)).text)
