"""``tenure run``."""

from __future__ import annotations

import click

from tenure.cli.arguments import pairs
from tenure.cli.commands.callbacks import checked_targets
from tenure.cli.context import settings_for, this_user
from tenure.cli.display.text import note
from tenure.cli.execute import execute
from tenure.cli.options import (
    completes,
    json_option,
    new_run_options,
    secrets_option,
    store_option,
    verb,
    workflow_options,
)
from tenure.cli.secrets import check_not_typed, gather
from tenure.cli.variables import check_files, check_limit, check_var_names, variables
from tenure.cli.view import style_of
from tenure.runner import RunOptions
from tenure.system import hide_memory, run_id_or_new
from tenure.workflow_file import load_workflow


@verb(
    "run",
    "tenure run deploy.yaml",
    "tenure run deploy.yaml --var release=1.4 --var replicas:=3 --limit web",
    "tenure run deploy.yaml --secret db_password --label team=web --json",
)
@click.argument("workflow", metavar="FILE", shell_complete=completes("workflow_files"))
@workflow_options
@new_run_options
@secrets_option
@click.option("--no-tracking", is_flag=True, help="Keep no record; execute only.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing unless something goes wrong.")
@json_option
@store_option
def command(
    workflow: str,
    approve: bool,
    given: tuple[str, ...],
    vars_files: tuple[str, ...],
    secrets: tuple[str, ...],
    run_id: str | None,
    labels: tuple[str, ...],
    callbacks: tuple[str, ...],
    limit: tuple[str, ...],
    local: bool,
    timeout: float | None,
    no_tracking: bool,
    quiet: bool,
    as_json: bool,
    store: str | None,
) -> int:
    """Execute a workflow here and now, and keep its record.

    Ctrl-C cancels cleanly: tasks are ended, and the record says so. A second Ctrl-C stops at once.
    With --json one line per event, and a last line with the final record. The exit code is that of
    the run: 0 success, 1 failed, 3 canceled, 4 interrupted. A workflow that asks for approval, run
    without --approve, waits in the store for tenure approve: exit code 7.
    """
    if callbacks and no_tracking:
        raise click.UsageError("--no-tracking sends no callbacks; leave out --callback.")
    hide_memory()
    new_id = run_id_or_new(run_id)
    settings = settings_for(store)
    known = variables(vars_files, given)
    file = load_workflow(workflow)
    for text in file.notices:
        note(f"notice: {text}")
    check_not_typed(given, file.workflow.secrets)
    check_var_names(file, given)
    check_limit(file.workflow, limit)
    check_files(file, known, limit=limit, local=local)
    options = RunOptions(
        run_id=new_id,
        vars=known,
        secrets=gather(secrets, file.workflow.secrets),
        labels=pairs(labels, "--label"),
        callbacks=checked_targets(*({"url": url} for url in callbacks)),
        timeout=timeout,
        limit=limit,
        local=local,
        approved_by=this_user() if approve else None,
    )
    style = style_of(as_json=as_json, quiet=quiet)
    return execute(
        settings,
        new_id,
        lambda runner: runner.run(file, options),
        style,
        tracking=not no_tracking,
    )
