"""``tenure submit``."""

from __future__ import annotations

import asyncio
from datetime import datetime

import click

from tenure.cli.arguments import Moment, QueueName, Whole, moment_after, pairs
from tenure.cli.commands.callbacks import checked_targets
from tenure.cli.context import (
    ends_with_us,
    must_be_able,
    open_to_read,
    open_to_submit,
    settings_for,
    this_user,
)
from tenure.cli.display import json_lines
from tenure.cli.display.text import bold, neutral, note, place_of, say, to_type
from tenure.cli.exit_codes import Exit
from tenure.cli.follow import watch
from tenure.cli.options import (
    broker_option,
    completes,
    json_option,
    new_run_options,
    store_option,
    verb,
    workflow_options,
)
from tenure.cli.secrets import check_not_typed
from tenure.cli.variables import check_files, check_limit, check_var_names, variables
from tenure.config import Settings
from tenure.model.errors import NotSupported
from tenure.model.leases import MAX_PRIORITY, MIN_PRIORITY
from tenure.model.snapshot import RunSnapshot
from tenure.ports.leases import LeaseStore
from tenure.runner import RunOptions
from tenure.runtime.explain import explain_run
from tenure.runtime.run import USE_INSTEAD, not_takeable
from tenure.system import SystemClock, presence, run_id_or_new
from tenure.workflow_file import WorkflowFile, load_workflow


@verb(
    "submit",
    "tenure submit deploy.yaml --var release=1.4",
    "tenure submit report.yaml --queue reports --after 2h",
    "tenure submit deploy.yaml --wait",
)
@click.argument("workflow", metavar="FILE", shell_complete=completes("workflow_files"))
@workflow_options
@click.option(
    "--queue",
    type=QueueName(),
    metavar="NAME",
    help="The queue, which decides which workers may take it.  [default: the file's]",
)
@click.option(
    "--priority",
    type=Whole(MIN_PRIORITY, MAX_PRIORITY),
    metavar="NUMBER",
    help="From -100 to 100; higher runs first.",
)
@click.option(
    "--after", type=Moment(), metavar="WHEN", help="Not before: 2h from now, or 2026-05-01T12:00Z."
)
@new_run_options
@click.option("--wait", is_flag=True, help="Wait for its end; the exit code is the run's.")
@json_option
@store_option
@broker_option
def command(
    workflow: str,
    given: tuple[str, ...],
    vars_files: tuple[str, ...],
    limit: tuple[str, ...],
    local: bool,
    queue: str | None,
    priority: int | None,
    after: float | datetime | None,
    approve: bool,
    run_id: str | None,
    labels: tuple[str, ...],
    callbacks: tuple[str, ...],
    timeout: float | None,
    wait: bool,
    as_json: bool,
    store: str | None,
    broker: str | None,
) -> int:
    """Queue a workflow for workers.

    The run is stored with everything it needs, files included, and executed by any worker of its
    queue; if that worker is lost, another one resumes it. Secrets are not stored: the workers have
    them. Without --wait the exit code is 0 as soon as the run is stored; with it, it is that of the
    run. Ctrl-C then only ends the waiting.
    """
    settings = settings_for(store, broker)
    _check_outlives_us(settings)
    must_be_able(settings, LeaseStore, not_takeable)
    known = variables(vars_files, given)
    file = load_workflow(workflow)
    for text in file.notices:
        note(f"notice: {text}")
    check_not_typed(given, file.workflow.secrets)
    check_var_names(file, given)
    check_limit(file.workflow, limit)
    check_files(file, known, limit=limit, local=local, waits=True)
    options = RunOptions(
        run_id=None if run_id is None else run_id_or_new(run_id),
        vars=known,
        labels=pairs(labels, "--label"),
        callbacks=checked_targets(*({"url": url} for url in callbacks)),
        queue=queue,
        priority=priority,
        run_after=moment_after(after, SystemClock().now()),
        timeout=timeout,
        limit=limit,
        local=local,
        approved_by=this_user() if approve else None,
    )
    run = asyncio.run(_submit(settings, file, options))
    if wait:
        stopped = to_type(f"stopped waiting; the run goes on: tenure watch {run.run_id}")
        return watch(settings, run.run_id, stopped, as_json=as_json)
    if as_json:
        say(json_lines.as_json(run))
    else:
        say(bold(run.run_id))
        note(asyncio.run(_standing(settings, run.run_id)))
    return Exit.SUCCESS


def _check_outlives_us(settings: Settings) -> None:
    if ends_with_us(settings):
        raise NotSupported(
            f"{place_of(settings.store)} ends with this command, and the run with it: no worker "
            f"would ever see it; {USE_INSTEAD}"
        )


async def _submit(settings: Settings, file: WorkflowFile, options: RunOptions) -> RunSnapshot:
    async with open_to_submit(settings) as runner:
        return await runner.submit(file, options)


async def _standing(settings: Settings, run_id: str) -> str:
    """What the run waits for, as in ``tenure explain``."""
    async with open_to_read(settings) as store:
        now = SystemClock().now()
        return to_type(neutral((await explain_run(store, run_id, now=now, presence=presence)).text))
