"""All commands with their one-line helps, as ``tenure --help`` shows them."""

from __future__ import annotations

import click

from tenure._version import __version__
from tenure.cli.group import LazyGroup

SECTIONS = {
    "Run": {
        "run": "Execute a workflow here and now, and keep its record.",
        "submit": "Queue a workflow for workers.",
        "plan": "Show what would run where, changing nothing.",
        "validate": "Check workflow files; report every mistake with its place.",
        "schema": "Print the JSON Schema of workflow files, for editors.",
    },
    "Look": {
        "list": "List runs, newest first.",
        "status": "Show one run, down to the hosts that failed.",
        "watch": "Follow a run that another process executes.",
        "logs": "Print the output of tasks.",
        "explain": "Say in one line why a run is not moving.",
    },
    "Act": {
        "retry": "Run again what is left of a run: what failed and what was not reached.",
        "approve": "Approve a run that waits for approval, and run it.",
        "cancel": "Stop a run.",
        "annotate": "Add a note to a run.",
        "reconcile": "End runs whose process is gone.",
        "callbacks": "List, show, redeliver and test callbacks.",
    },
    "Serve": {
        "worker": "Execute queued runs, and resume those whose worker was lost.",
        "gateway": "Serve the HTTP API: for people, programs and remote workers.",
        "up": "Everything one machine needs, in one process.",
    },
    "Look after": {
        "store": "Migrate, check and prune the store.",
        "token": "Create, list and revoke tokens for the gateway.",
        "doctor": "Check settings, store, broker and machine; explain what is wrong.",
        "completion": "Print the completion script of a shell.",
        "version": "Print the versions of Tenure, Python and SQLite.",
    },
}


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    examples=(
        "tenure run deploy.yaml --var release=1.4",
        "tenure status latest",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="tenure", message="%(prog)s %(version)s")
def app() -> None:
    """Multi-step workflows over many hosts; every run outlives the process that started it."""
