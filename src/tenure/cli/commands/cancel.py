"""``tenure cancel``."""

from __future__ import annotations

import asyncio
import logging

import click

from tenure.cli.context import meant_run, open_to_read, open_to_send, settings_for, this_user
from tenure.cli.display import json_lines
from tenure.cli.display.text import bold, in_color, one_line, say, to_type
from tenure.cli.options import json_option, run_argument, store_option, verb
from tenure.model.errors import InvalidRunId, RunNotFound
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.ports.store import Attended, RunStateStore
from tenure.runtime.callbacks import OnCommitted
from tenure.runtime.operators import Operators
from tenure.runtime.owners import OwnerDoubt, doubt_about, owner_label
from tenure.runtime.reconciler import Reconciler, told_of
from tenure.system import new_owner_id, new_update_id, presence

_log = logging.getLogger("tenure.cli")


@verb("cancel", 'tenure cancel latest --reason "wrong release"')
@run_argument
@click.option("--reason", metavar="TEXT", help="Why; kept in the record.")
@json_option
@store_option
def command(run_id: str, reason: str | None, as_json: bool, store: str | None) -> None:
    """Stop a run.

    The request is recorded at once. The process that executes the run ends its tasks within a
    moment; a run without an owner ends right away. A run that had ended before stays as it is, and
    the answer says so. To follow it to the end: tenure watch RUN
    """
    asyncio.run(_cancel(run_id, reason, as_json, store))


async def _cancel(word: str, reason: str | None, as_json: bool, url: str | None) -> None:
    """Not with a runner: opening one marks runs of dead processes as interrupted, and this one
    shall be canceled. The others are marked afterwards."""
    settings = settings_for(url)
    async with open_to_read(settings) as store, open_to_send(store, settings) as callbacks:
        try:
            run_id = await meant_run(store, word)
            had_ended = (await store.get_run(run_id)).ended
            operators = Operators(store, new_update_id, callbacks.told)
            await operators.cancel(run_id, reason=reason, by=this_user())
        except (RunNotFound, InvalidRunId):
            await _mark_abandoned(store, callbacks.told)
            raise
        await _mark_abandoned(store, callbacks.told, run_id)
        run = await store.get_run(run_id)
    say(json_lines.as_json(run) if as_json else _answer(run, had_ended))


async def _mark_abandoned(
    store: RunStateStore, told: OnCommitted, answered: str | None = None
) -> None:
    """As every command that writes does. Nothing is printed about the run ``answered``."""
    if isinstance(store, Attended):
        return
    reconciler = Reconciler(store, new_owner_id(), new_update_id, presence, told=told)
    ended = await reconciler.end_abandoned()
    for line in told_of(ended.without(answered), "process"):
        _log.warning(line)


def _answer(run: RunSnapshot, had_ended: bool) -> str:
    name = bold(one_line(run.run_id))
    status = in_color(run.status)
    if had_ended:
        return f"{name} had already ended as {status}; that stands"
    if run.status is RunStatus.CANCELED:
        return f"{name} is {status}"
    if run.ended:
        return f"{name} ended as {status} just now; that stands"
    owner = owner_label(run.owner_id)
    if doubt_about(run, presence) is OwnerDoubt.GONE:
        then = to_type(f"the next reconcile marks it canceled; tenure watch {run.run_id}")
        return f"{name}: {owner} is gone; {then}"
    return f"{name}: {owner} was asked to stop; {to_type(f'tenure watch {run.run_id}')}"
