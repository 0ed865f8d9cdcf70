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
from tenure.system import new_owner_id, new_update_id, presence
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
    that is alive is never hit; one that resumes is left to the next worker. Runs that nobody
    approved in time are canceled.
    """
    ended, expired = asyncio.run(_reconcile(settings_for(store), reason))
    if as_json:
        facts = {"interrupted": len(ended), "run_ids": ended, "expired": expired}
        say(json_lines.as_json(facts))
        return
    if ended:
        say(f"{counted(len(ended), 'run')} marked as interrupted: {listed(ended)}")
    if expired:
        say(f"{counted(len(expired), 'run')} canceled, not approved in time: {listed(expired)}")
    if not ended and not expired:
        say("nothing to do: no run has lost its owner")


async def _reconcile(settings: Settings, reason: str) -> tuple[list[str], list[str]]:
    """Not through a runner: that one would reconcile while it opens, with a reason of its own."""
    try:
        async with reading(settings) as store, telling(store, settings) as callbacks:
            reconciler = Reconciler(
                store, new_owner_id(), new_update_id, presence, told=callbacks.told
            )
            await reconciler.let_tasks_end()
            expired = await reconciler.expire()
            return await reconciler.reconcile(reason), expired
    except NoRunsYet:
        return [], []
