"""``tenure version``."""

from __future__ import annotations

import click

from tenure._version import __version__


@click.command(epilog="Example: tenure version --json")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def version(as_json: bool) -> None:
    """Say which Tenure, Python and SQLite this is."""
    import json
    import platform

    import apsw

    facts = {
        "tenure": __version__,
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
    }
    if as_json:
        click.echo(json.dumps(facts))
    else:
        click.echo("\n".join(f"{name:<8}{value}" for name, value in facts.items()))
