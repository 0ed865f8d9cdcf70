"""The verbs, one file each."""

from __future__ import annotations

import click

from tenure._version import __version__
from tenure.cli.version import version


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: tenure version --json",
)
@click.version_option(__version__, prog_name="tenure", message="%(prog)s %(version)s")
def app() -> None:
    """Multi-step workflows over many hosts; every run outlives the process that started it."""


app.add_command(version)
