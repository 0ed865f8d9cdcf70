"""``tenure reconcile``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import click

from tenure.cli.context import NoRunsYet, open_to_read, open_to_send, settings_for
from tenure.cli.display import json_lines
from tenure.cli.display.text import counted, say
from tenure.cli.options import json_option, store_option, verb
from tenure.config import Settings
from tenure.runtime.owners import owned_runs, unattended
from tenure.runtime.reconciler import EndedRuns, Reconciler
from tenure.system import new_owner_id, new_update_id, presence
from tenure.workflow.wording import listed


@verb("reconcile", 'tenure reconcile --reason "the machine was replaced"')
@click.option(
    "--reason", metavar="TEXT", default="its owner is gone", help="The reason in their records."
)
@json_option
@store_option
def command(reason: str, as_json: bool, store: str | None) -> None:
    """End runs whose process is gone.

    Every command that writes does so when it starts, for processes of this machine that are
    certainly gone. This one also ends runs whose lease has expired, on any machine. A run that was
    asked to stop ends as canceled, any other as interrupted. A live run is never ended; one that
    resumes is left to the next worker. Runs not approved in time are canceled.
    """
    ended, left = asyncio.run(_reconcile(settings_for(store), reason))
    if as_json:
        facts = {
            "interrupted": len(ended.interrupted),
            "run_ids": ended.interrupted,
            "canceled": ended.canceled,
            "expired": ended.expired,
            "left_to_workers": left,
        }
        say(json_lines.as_json(facts))
    else:
        say("\n".join(_lines(ended, left)))


def _lines(ended: EndedRuns, left: int) -> Iterator[str]:
    for what, run_ids in (
        ("marked as interrupted", ended.interrupted),
        ("canceled, as was asked before", ended.canceled),
        ("canceled, not approved in time", ended.expired),
    ):
        if run_ids:
            yield f"{counted(len(run_ids), 'run')} {what}: {listed(run_ids)}"
    if left:
        lost, them = ("has lost its", "it") if left == 1 else ("have lost their", "them")
        yield f"{counted(left, 'run')} {lost} owner and resumes: a worker continues {them}"
    elif not any(ended):
        yield "nothing to do: no run has lost its owner"


async def _reconcile(settings: Settings, reason: str) -> tuple[EndedRuns, int]:
    """The ended runs, and how many runs without an owner are left to workers. (Not with a runner:
    it would reconcile when it opens, with its own reason.)"""
    try:
        async with open_to_read(settings) as store, open_to_send(store, settings) as callbacks:
            reconciler = Reconciler(
                store, new_owner_id(), new_update_id, presence, told=callbacks.told
            )
            await reconciler.let_tasks_end()
            ended = await reconciler.reconcile(reason)
            return ended, unattended(await owned_runs(store), presence).to_resume
    except NoRunsYet:
        return EndedRuns(), 0
