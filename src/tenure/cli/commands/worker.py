"""``tenure worker``."""

from __future__ import annotations

import click

from tenure.cli.arguments import QueueName, Whole
from tenure.cli.context import settings_for
from tenure.cli.display.text import place_of
from tenure.cli.options import broker_option, json_option, secrets_option, store_option, verb
from tenure.cli.secrets import for_worker
from tenure.cli.serve import serve
from tenure.runtime.options import MOST_AT_ONCE
from tenure.system import hide_memory
from tenure.workflow.wording import listed


@verb(
    "worker",
    "tenure worker --store postgresql://tenure@db/tenure",
    "tenure worker --queue default --queue reports --concurrency 50",
    "tenure worker --secret db_password=@/run/secrets/db",
)
@click.option(
    "--queue",
    "queues",
    type=QueueName(),
    metavar="NAME",
    multiple=True,
    help="Queues it serves.  [default: default]",
)
@click.option(
    "--concurrency",
    type=Whole(1, MOST_AT_ONCE),
    metavar="NUMBER",
    default=20,
    show_default=True,
    help="Runs at once.",
)
@click.option("--name", metavar="NAME", help="Its name in records, besides its process.")
@secrets_option
@click.option("-q", "--quiet", is_flag=True, help="Print nothing unless something goes wrong.")
@json_option
@store_option
@broker_option
def command(
    queues: tuple[str, ...],
    concurrency: int,
    name: str | None,
    secrets: tuple[str, ...],
    quiet: bool,
    as_json: bool,
    store: str | None,
    broker: str | None,
) -> int:
    """Execute queued runs, and resume those whose worker was lost.

    Any number of workers may share a store: SQLite on one machine, PostgreSQL on many. SIGTERM or
    Ctrl-C drains: nothing new is claimed, runs end within drain_timeout or are released for the
    next worker; those that do not resume are interrupted. A second signal stops at once. Secrets
    that workflows declare are taken from --secret and from TENURE_SECRET_…; runs carry none.
    """
    hide_memory()
    settings = settings_for(store, broker)
    queues = queues or ("default",)
    opening = f"serving {listed(queues)} of {place_of(settings.store)}, {concurrency} runs at once"
    return serve(
        settings,
        opening,
        queues=queues,
        concurrency=concurrency,
        secrets=for_worker(secrets),
        name=name,
        quiet=quiet,
        as_json=as_json,
    )
