"""``tenure retry``."""

from __future__ import annotations

import asyncio

import click

from tenure.cli.context import open_to_read, settings_for, this_user
from tenure.cli.display.text import counted, note
from tenure.cli.execute import ExistingRun, execute, find
from tenure.cli.options import (
    completes,
    json_option,
    limit_option,
    run_argument,
    secrets_option,
    store_option,
    verb,
)
from tenure.cli.secrets import gather
from tenure.cli.variables import check_limit
from tenure.cli.view import style_of
from tenure.config import Settings
from tenure.model.errors import RunExists, RunNotFound
from tenure.ports.store import RunStateStore
from tenure.runner import RetryOptions
from tenure.runtime.retry import definition_of_retry, work_left
from tenure.system import hide_memory, run_id_or_new


@verb(
    "retry",
    "tenure retry latest",
    "tenure retry 01JCQ5T4Y9K3V8M2N6P7R1S0WX --only-failed --secret db_password",
    "tenure retry latest --from-step restart --limit web1,web2",
)
@run_argument
@click.option(
    "--only-failed",
    is_flag=True,
    help="Only hosts on which something went wrong, not those that were not reached.",
)
@click.option(
    "--from-step",
    metavar="STEP",
    shell_complete=completes("steps"),
    help="This step and all that depend on it run again on every host; no other step does.",
)
@click.option(
    "--again",
    metavar="STEP",
    multiple=True,
    shell_complete=completes("steps"),
    help="This step runs again too, though it succeeded: for an export with a secret in it, which "
    "is not stored.",
)
@limit_option
@secrets_option
@click.option("--approve", is_flag=True, help="Approve a workflow that asks for approval.")
@click.option("--run-id", "new_id", metavar="ID", help="Your own id for the new run.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing unless something goes wrong.")
@json_option
@store_option
def command(
    run_id: str,
    only_failed: bool,
    from_step: str | None,
    again: tuple[str, ...],
    limit: tuple[str, ...],
    secrets: tuple[str, ...],
    approve: bool,
    new_id: str | None,
    quiet: bool,
    as_json: bool,
    store: str | None,
) -> int:
    """Run again what is left of a run: what failed and what was not reached.

    A new run, linked to the old one, executed here and now. Each step runs on the hosts that did
    not succeed: failed, unreachable, unknown, interrupted or not reached. Hosts that succeeded are
    not touched again; their exports are available to the rest. Handlers that were due and did not
    run, run. Workflow, files, variables and options are those of the old run; secrets have to be
    given again. Retrying a retry continues where that one stopped.
    """
    hide_memory()
    settings = settings_for(store)
    new_id = run_id_or_new(new_id)
    found = asyncio.run(_find(settings, run_id, new_id))
    check_limit(found.file.workflow, limit)
    options = RetryOptions(
        run_id=new_id,
        only_failed=only_failed,
        from_step=from_step,
        again=again,
        limit=limit,
        secrets=gather(secrets, found.file.workflow.secrets),
        approved_by=this_user() if approve else None,
    )
    definition = definition_of_retry(found.stored, found.file.workflow, options)
    old = found.stored.snapshot.run_id
    if not as_json and not quiet:
        tasks = counted(work_left(definition, found.file.workflow), "task")
        note(f"retrying {old}: {tasks} left")
    return execute(
        settings,
        new_id,
        lambda runner: runner.retry(old, options),
        style_of(as_json=as_json, quiet=quiet),
    )


async def _find(settings: Settings, word: str, new_id: str) -> ExistingRun:
    """The run, after checking that ``new_id`` is unused."""
    found = await find(settings, word)
    async with open_to_read(settings) as store:
        await _check_unused(new_id, store)
    return found


async def _check_unused(run_id: str, store: RunStateStore) -> None:
    try:
        await store.get_run(run_id)
    except RunNotFound:
        return
    raise RunExists(run_id)
