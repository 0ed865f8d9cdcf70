"""``tenure up``."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from tenure.cli.arguments import Whole
from tenure.cli.context import settings_for
from tenure.cli.display.text import note, place_of
from tenure.cli.options import broker_option, json_option, secrets_option, store_option, verb
from tenure.cli.secrets import for_worker
from tenure.cli.serve import (
    Entry,
    fronting,
    how_to_install,
    listen_options,
    missing_packages,
    serve,
)
from tenure.runtime.options import MOST_AT_ONCE
from tenure.system import hide_memory


@verb("up", "tenure up", "tenure up --store sqlite:///runs.db --concurrency 5")
@click.option(
    "--concurrency",
    type=Whole(1, MOST_AT_ONCE),
    metavar="NUMBER",
    default=20,
    show_default=True,
    help="Runs at once.",
)
@secrets_option
@listen_options
@click.option("--no-gateway", is_flag=True, help="No HTTP API: only the worker.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing unless something goes wrong.")
@json_option
@store_option
@broker_option
def command(
    concurrency: int,
    secrets: tuple[str, ...],
    listen: str | None,
    no_token: bool,
    token_file: Path | None,
    no_gateway: bool,
    quiet: bool,
    as_json: bool,
    store: str | None,
    broker: str | None,
) -> int:
    """Everything one machine needs, in one process.

    A worker for the queue "default", the gateway, callbacks and the marking of abandoned runs, on
    SQLite unless another store is named. Then, from anywhere on this machine: tenure submit FILE.
    Ctrl-C drains, as with tenure worker; the gateway answers until that is done. It asks for a
    token: the first start makes one and says which file it is in.
    """
    hide_memory()
    settings = settings_for(store, broker, listen=listen)
    with_gateway = not no_gateway and not missing_packages()
    if not with_gateway and not no_gateway and not quiet:
        note(f"without the gateway: {how_to_install()}")
    return serve(
        settings,
        f"up on {place_of(settings.store)}; tenure submit FILE queues a run",
        queues=("default",),
        concurrency=concurrency,
        secrets=for_worker(secrets),
        name=None,
        quiet=quiet,
        as_json=as_json,
        front=partial(fronting, entry=Entry.of(no_token, token_file)) if with_gateway else None,
    )
