"""The generated pages are fresh, and the examples on them are accepted."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import python_reference, settings_reference

import tenure
from tenure.config import READERS, load_settings
from tests.docs.fences import blocks


@pytest.mark.parametrize("tool", [python_reference, settings_reference])
def test_the_committed_page_is_fresh(tool: object) -> None:
    assert tool.main(["--check"]) == 0  # type: ignore[attr-defined]


def test_every_public_name_is_on_the_page() -> None:
    grouped = {name for names in python_reference.PARTS.values() for name in names}
    errors = {name for name in tenure.__all__ if python_reference.is_error(getattr(tenure, name))}
    assert grouped | errors == set(tenure.__all__) - {"__version__"}


def test_every_setting_says_what_it_means() -> None:
    assert set(READERS) <= set(settings_reference.meanings())


def test_settings_on_pages_are_accepted(tmp_path: Path) -> None:
    found = [
        block for block in blocks("toml") if block.page.name in ("settings.md", "production.md")
    ]
    assert found
    for block in found:
        (tmp_path / "tenure.toml").write_text(block.body)
        load_settings({}, environ={}, folder=tmp_path)
