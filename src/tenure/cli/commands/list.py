"""``tenure list``."""

from __future__ import annotations

import asyncio
from datetime import datetime

import click

from tenure.cli.arguments import Moment, moment_before, pairs
from tenure.cli.context import NoRunsYet, open_to_read, settings_for
from tenure.cli.display import json_lines
from tenure.cli.display.report import run_table
from tenure.cli.display.text import note, place_of, say, to_type
from tenure.cli.options import json_option, page_options, store_option, verb
from tenure.config import Settings
from tenure.model.query import Page, RunFilter
from tenure.model.snapshot import RunSummary
from tenure.model.status import RunStatus
from tenure.system import SystemClock


@verb(
    "list",
    "tenure list --status failed --since 1d",
    "tenure list --workflow deploy --label team=web --json",
)
@click.option(
    "--status",
    "statuses",
    metavar="STATUS",
    multiple=True,
    type=click.Choice([str(status) for status in RunStatus], case_sensitive=False),
    help="Only runs that are queued, running, success, failed, canceled or interrupted. "
    "May be given several times.",
)
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option(
    "--label", "labels", metavar="KEY=VALUE", multiple=True, help="Only runs with this label."
)
@click.option("--since", type=Moment(), metavar="1h|TIME", help="Only runs created since then.")
@page_options
@json_option
@store_option
def command(
    statuses: tuple[str, ...],
    workflow: str | None,
    labels: tuple[str, ...],
    since: float | datetime | None,
    limit: int,
    cursor: str | None,
    as_json: bool,
    store: str | None,
) -> None:
    """List runs, newest first."""
    now = SystemClock().now()
    where = RunFilter(
        statuses=frozenset(map(RunStatus, statuses)),
        workflow_name=workflow,
        labels=pairs(labels, "--label"),
        created_from=moment_before(since, now),
    )
    settings = settings_for(store)
    page = asyncio.run(_page(settings, where, limit, cursor))
    if as_json:
        say(json_lines.as_json({"runs": page.items, "cursor": page.cursor}))
    elif not page.items:
        _say_empty(where, place_of(settings.store))
    else:
        for line in run_table(page.items, now):
            say(line)
        if page.cursor is not None:
            note(f"there are more: --cursor {page.cursor}")


async def _page(
    settings: Settings, where: RunFilter, limit: int, cursor: str | None
) -> Page[RunSummary]:
    try:
        async with open_to_read(settings) as store:
            return await store.list_runs(where, limit=limit, cursor=cursor)
    except NoRunsYet:
        return Page(items=())


def _say_empty(where: RunFilter, place: str) -> None:
    if where == RunFilter():
        note(f"no runs yet in {place}; start one: {to_type('tenure run workflow.yaml')}")
    else:
        note(f"no run in {place} matches; without filters: {to_type('tenure list')}")
