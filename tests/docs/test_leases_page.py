"""What the page about leases tells people to set can be set."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tenure
from tenure.config import READERS, Settings, load_settings
from tests.docs.fences import ROOT

PAGE = ROOT / "docs/operations/leases.md"


def rows() -> list[tuple[str, dict[str, str]]]:
    """Who is meant, and which settings the row names."""
    table = PAGE.read_text().split("## What to set")[1].split("\n## ")[0]
    cells = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")][1:]
    return [(whom.strip(), dict(re.findall(r'`(\w+) = "(\w+)"`', what))) for whom, what, _ in cells]


ROWS = rows()


def test_the_table_has_rows_that_set_something() -> None:
    assert len(ROWS) >= 6
    named = {name for _, settings in ROWS for name in settings}
    assert {"lease_duration", "renew_interval", "poll_interval"} <= named <= set(READERS)


def as_settings(given: dict[str, str], folder: Path) -> Settings:
    lines = [f'{name} = "{value}"' for name, value in given.items()]
    (folder / "tenure.toml").write_text("\n".join(lines))
    return load_settings({"store": "memory:"}, environ={}, folder=folder)


@pytest.mark.parametrize("given", [given for _, given in ROWS], ids=[whom for whom, _ in ROWS])
def test_each_row_is_accepted_as_it_stands(given: dict[str, str], tmp_path: Path) -> None:
    settings = as_settings(given, tmp_path)
    assert {settings.source_of(name) for name in given} <= {str(tmp_path / "tenure.toml")}


@pytest.mark.parametrize("given", [given for _, given in ROWS], ids=[whom for whom, _ in ROWS])
def test_each_row_is_accepted_from_python_too(given: dict[str, str], tmp_path: Path) -> None:
    settings = as_settings(given, tmp_path)
    timing = tenure.Timing(
        lease_duration=settings.lease_duration, renew_interval=settings.renew_interval
    )
    tenure.Worker("memory:", timing=timing, broker="redis://h")
