"""``tenure plan``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import click

from tenure.bootstrap import default_actions, default_transport
from tenure.cli.display import json_lines
from tenure.cli.display.paint import note, say
from tenure.cli.display.preview_lines import preview_lines
from tenure.cli.limiting import check_limit
from tenure.cli.preview import Preview, preview
from tenure.cli.secrets import check_declared, gather, names_of
from tenure.cli.variables import variables
from tenure.cli.verb import completes, json_option, secrets_option, verb, workflow_options
from tenure.runtime.birth import secret_values
from tenure.runtime.masking import Masks
from tenure.runtime.recipe import Prepared, prepare
from tenure.workflow.defined import check_supplied
from tenure.workflow.plan import make_plan
from tenure.workflow_file import load_workflow


@verb(
    "plan",
    "tenure plan deploy.yaml --var release=1.4",
    "tenure plan deploy.yaml --limit web1 --json",
    "tenure plan deploy.yaml --secret db_password",
)
@click.argument("workflow", metavar="FILE", shell_complete=completes("workflow_files"))
@workflow_options
@secrets_option
@json_option
def command(
    workflow: str,
    given: tuple[str, ...],
    vars_files: tuple[str, ...],
    secrets: tuple[str, ...],
    limit: tuple[str, ...],
    local: bool,
    as_json: bool,
) -> None:
    """Show what would run where, changing nothing.

    Every action is asked on every host what it would do; files it would write are shown as a
    difference, secrets masked. What depends on secrets that --secret does not give, or on variables
    that earlier steps export, is said to be not known yet.
    """
    known = variables(vars_files, given)
    names = known.keys() | names_of(secrets)
    file = load_workflow(workflow)
    for text in file.notices:
        note(f"notice: {text}")
    check_declared(names_of(secrets), file.workflow.secrets)
    check_limit(file.workflow, limit)
    plan = make_plan(file.workflow, limit=limit, local=local)
    check_supplied(file.wanted, plan, names)
    prepared = prepare(plan, default_actions())
    # Only what was asked for: to look ahead nobody needs all the secrets that the run will.
    known |= gather(secrets, sorted(names_of(secrets)))
    found = asyncio.run(_preview(prepared, known, file.folder))
    if as_json:
        say(json_lines.as_json(found))
        return
    for line in preview_lines(found):
        say(line)


async def _preview(prepared: Prepared, given: dict[str, Any], folder: str | None) -> Preview:
    transport = default_transport()
    masks = Masks(_in_differences(secret_values(given, prepared.plan.workflow, ())))
    try:
        return await preview(prepared, given, transport, folder, masks)
    finally:
        await transport.close()


def _in_differences(secrets: Iterable[Any]) -> Iterator[str]:
    """There each line of a secret has a sign before it, also those too short to be told alone."""
    for secret in map(str, secrets):
        yield secret
        for sign in "+- " if "\n" in secret else "":
            yield secret.strip().replace("\n", f"\n{sign}")
