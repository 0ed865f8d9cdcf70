"""``tenure reconcile``."""

from __future__ import annotations

import asyncio

import click

from tenure.cli.display import json_lines
from tenure.cli.display.paint import say
from tenure.cli.display.text import counted
from tenure.cli.opening import reading, settings_for
from tenure.cli.verb import json_option, store_option, verb
from tenure.config import Settings
from tenure.runtime.recovery import Reconciler
from tenure.system import new_owner_id, new_update_id, proven_dead


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
    count = asyncio.run(_reconcile(settings_for(store), reason))
    if as_json:
        say(json_lines.as_json({"interrupted": count}))
    elif count:
        say(f"{counted(count, 'run')} marked as interrupted: tenure list --status interrupted")
    else:
        say("nothing to do: no run has lost its owner")


async def _reconcile(settings: Settings, reason: str) -> int:
    """Not through a runner: that one would reconcile while it opens, with a reason of its own."""
    async with reading(settings) as store:
        reconciler = Reconciler(store, new_owner_id(), new_update_id, proven_dead)
        return await reconciler.reconcile(reason)
