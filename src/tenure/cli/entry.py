"""The ``tenure`` command: answers the cheapest question without loading anything."""

from __future__ import annotations

import sys


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        from tenure._version import __version__

        print(f"tenure {__version__}")
        return
    from tenure.cli.app import app

    app(prog_name="tenure")
