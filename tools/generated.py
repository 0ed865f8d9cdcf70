"""Pages that are generated from code: write them, or check that the ones on disk are fresh.

Each script of this folder is run as ``python -m tools.NAME``, with ``--check`` to only compare and
``--folder`` for another place than ``docs/reference``. ``make docs`` runs them all.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"

Maker = Callable[[str], str]
"""The new text of a page, from the one on disk (empty: there is none)."""


class NotThePage(Exception):
    """The page on disk cannot be brought up to date."""


def write_or_check(pages: Mapping[str, Maker], arguments: list[str] | None = None) -> int:
    """The exit code: 1 if ``--check`` finds a page that is not what would be written."""
    parser = argparse.ArgumentParser(description=f"Write {', '.join(pages)} from the code.")
    parser.add_argument("--check", action="store_true", help="only compare with what is on disk")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the pages are")
    options = parser.parse_args(arguments)
    stale = [name for name in pages if not _fresh(options.folder / name, pages[name], options)]
    return int(bool(stale))


def _fresh(path: Path, make: Maker, options: argparse.Namespace) -> bool:
    old = path.read_text(encoding="utf-8") if path.is_file() else ""
    try:
        new = make(old)
    except NotThePage as error:
        print(f"{path}: {error}", file=sys.stderr)
        return False
    if options.check and new != old:
        print(f"{path} is not what the code says: run `make docs`", file=sys.stderr)
        return False
    if new != old:
        path.write_text(new, encoding="utf-8")
    return True


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    titles = list(head)
    return [row(titles), "|" + "---|" * len(titles), *map(row, rows)]


def row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
