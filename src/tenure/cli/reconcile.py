"""``tenure reconcile``."""

from __future__ import annotations

import asyncio

import click

from tenure.cli.display import json_lines
from tenure.cli.display.paint import say
from tenure.cli.display.text import counted
from tenure.cli.opening import NoRunsYet, reading, settings_for, telling
from tenure.cli.verb import json_option, store_option, verb
from tenure.config import Settings
from tenure.runtime.recovery import Reconciler
from tenure.system import new_owner_id, new_update_id, proven_dead
from tenure.workflow.wording import listed


@verb("reconcile", 'tenure reconcile --reason "the machine was replaced"')
@click.option(
    "--reason", metavar="TEXT", default="its owner is gone", help="What their records will say."
)
@json_option
@store_option
def command(reason: str, as_json: bool, store: str | None) -> None:
    """Mark runs as interrupted whose process is gone.

    Every command that writes does so when it starts, for processes of this machine that are
    provably gone. This one also ends runs whose lease ran out, wherever their process was. A run
    that is alive is never hit; one that resumes is left to the next worker.
    """
    ended = asyncio.run(_reconcile(settings_for(store), reason))
    if as_json:
        say(json_lines.as_json({"interrupted": len(ended), "run_ids": ended}))
    elif ended:
        say(f"{counted(len(ended), 'run')} marked as interrupted: {listed(ended)}")
    else:
        say("nothing to do: no run has lost its owner")


async def _reconcile(settings: Settings, reason: str) -> list[str]:
    """Not through a runner: that one would reconcile while it opens, with a reason of its own."""
    try:
        async with reading(settings) as store, telling(store, settings) as callbacks:
            reconciler = Reconciler(
                store, new_owner_id(), new_update_id, proven_dead, told=callbacks.told
            )
            return await reconciler.reconcile(reason)
    except NoRunsYet:
        return []
