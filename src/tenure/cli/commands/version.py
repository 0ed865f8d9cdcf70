"""``tenure version``."""

from __future__ import annotations

from tenure._version import __version__
from tenure.cli.display.text import dim, say
from tenure.cli.options import json_option, verb


@verb("version", "tenure version --json")
@json_option
def command(as_json: bool) -> None:
    """Print the versions of Tenure, Python and SQLite."""
    import json
    import platform

    from tenure.bootstrap import sqlite_version

    facts = {
        "tenure": __version__,
        "python": platform.python_version(),
        "sqlite": sqlite_version(),
    }
    if as_json:
        say(json.dumps(facts))
    else:
        say("\n".join(f"{dim(name.ljust(8))}{value}" for name, value in facts.items()))
