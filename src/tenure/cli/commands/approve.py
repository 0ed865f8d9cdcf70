"""``tenure approve``."""

from __future__ import annotations

import asyncio

import click

from tenure.cli.context import open_to_change, open_to_read, settings_for, this_user
from tenure.cli.display import json_lines
from tenure.cli.display.text import bold, neutral, one_line, say, to_type
from tenure.cli.execute import execute, find
from tenure.cli.exit_codes import OF_STATUS, Exit
from tenure.cli.options import json_option, run_argument, secrets_option, store_option, verb
from tenure.cli.secrets import gather
from tenure.cli.view import style_of
from tenure.config import Settings
from tenure.model.errors import LeaseHeld, NotRunnable
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.runner import Runner
from tenure.runtime.explain import explain_as_read
from tenure.runtime.prepare import check_secrets
from tenure.system import SystemClock, presence


@verb(
    "approve",
    'tenure approve latest --note "change OPS-42"',
    "tenure approve 01JCQ5T4Y9K3V8M2N6P7R1S0WX --secret db_password",
    "tenure approve latest --no-run",
)
@run_argument
@click.option("--note", metavar="TEXT", help="Why; kept in the record.")
@click.option("--by", metavar="NAME", help="The name of the approver.  [default: you]")
@click.option("--no-run", is_flag=True, help="Approve only; the next worker runs it.")
@secrets_option
@click.option("-q", "--quiet", is_flag=True, help="Print nothing unless something goes wrong.")
@json_option
@store_option
def command(
    run_id: str,
    note: str | None,
    by: str | None,
    no_run: bool,
    secrets: tuple[str, ...],
    quiet: bool,
    as_json: bool,
    store: str | None,
) -> int:
    """Approve a run that waits for approval, and run it.

    The first approval stands; the record keeps its author, time and note. Where a worker serves
    the run's queue the run is left to it. Otherwise it is executed here and now, as tenure run
    would, and the exit code is that of the run; if this process dies before the run begins, run
    tenure approve again. To refuse: tenure cancel RUN --reason TEXT
    """
    settings = settings_for(store)
    found = asyncio.run(find(settings, run_id))
    run, by = found.stored.snapshot, by or this_user()
    here = not no_run and not found.served and run.status is RunStatus.QUEUED
    if not here:
        approved = asyncio.run(_approve(settings, run.run_id, by, note))
        return _tell(settings, approved, as_json=as_json)
    given = gather(secrets, found.file.workflow.secrets)
    check_secrets(found.file, given)

    async def approve_and_run(runner: Runner) -> RunSnapshot:
        await runner.approve(run.run_id, by=by, note=note)
        return await runner.execute(run.run_id, secrets=given)

    try:
        return execute(
            settings, run.run_id, approve_and_run, style_of(as_json=as_json, quiet=quiet)
        )
    except (LeaseHeld, NotRunnable):  # another process has claimed it meanwhile
        return _tell(settings, asyncio.run(_now(settings, run.run_id)), as_json=as_json)


async def _approve(settings: Settings, run_id: str, by: str, note: str | None) -> RunSnapshot:
    async with open_to_change(settings) as runner:
        return await runner.approve(run_id, by=by, note=note)


async def _now(settings: Settings, run_id: str) -> RunSnapshot:
    async with open_to_read(settings) as store:
        return await store.get_run(run_id)


def _tell(settings: Settings, run: RunSnapshot, *, as_json: bool) -> int:
    """Print the approval, and what the run waits for now."""
    if as_json:
        say(json_lines.as_json(run))
    else:
        standing = asyncio.run(_standing(settings, run))
        say(f"{bold(run.run_id)} is approved by {one_line(run.approval.by or '?')}; {standing}")
    return OF_STATUS[run.status] if run.ended else Exit.SUCCESS


async def _standing(settings: Settings, run: RunSnapshot) -> str:
    """The sentence of ``tenure explain``."""
    async with open_to_read(settings) as store:
        now = SystemClock().now()
        return to_type(
            neutral((await explain_as_read(store, run, now=now, presence=presence)).text)
        )
