"""The tables of the workflow reference are those of the code, as `make docs` writes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import workflow_reference
from tools.generated import NotThePage
from tools.workflow_reference import NOT_YET, PAGE, PARTS, TABLES, fresh

from tenure.actions.registry import MODULES
from tenure.workflow.spec import Handler, Step, Workflow


def test_the_committed_page_is_fresh() -> None:
    assert workflow_reference.main(["--check"]) == 0


def test_a_stale_table_is_noticed_and_mended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "workflow.md"
    page.write_text(PAGE.read_text().replace("| `50` | hosts at once |", "| `5` | hosts at once |"))
    assert workflow_reference.main(["--check", "--folder", str(tmp_path)]) == 1
    assert "run `make docs`" in capsys.readouterr().err
    assert workflow_reference.main(["--folder", str(tmp_path)]) == 0
    assert workflow_reference.main(["--check", "--folder", str(tmp_path)]) == 0
    assert page.read_text() == PAGE.read_text()


def test_prose_is_left_alone() -> None:
    assert fresh("before\n" + PAGE.read_text() + "after\n").startswith("before\n")


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_page_that_lacks_a_table_or_has_it_twice_is_refused(name: str) -> None:
    page = PAGE.read_text()
    with pytest.raises(NotThePage, match=name):
        fresh(page.replace(f"<!-- table: {name} -->", ""))
    with pytest.raises(NotThePage, match=name):
        fresh(page + f"<!-- table: {name} -->\n<!-- end -->\n")


def test_a_page_that_is_not_there_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert workflow_reference.main(["--check", "--folder", str(tmp_path)]) == 1
    assert "workflow.md" in capsys.readouterr().err


def test_every_key_and_action_has_its_row() -> None:
    page = PAGE.read_text()
    for struct in (Workflow, Step, Handler):
        assert all(f"`{name}`" in page for name in struct.__struct_fields__)
    assert all(f"### {name}\n" in page for name in MODULES)


def test_what_is_marked_as_not_yet_done_does_exist() -> None:
    keys = {(name, key.name) for name, part in PARTS.items() for key in part.keys}
    assert set(NOT_YET) <= keys
