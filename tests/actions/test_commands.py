"""From arguments to commands: the cases are in ``commands/*.json``, one file per action."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tenure.actions import new_registry
from tenure.actions.commands import CommandAction
from tenure.model.errors import InvalidArguments
from tenure.ports.execution import Command
from tenure.transports.routing import UnreachableTransport
from tests.actions.making import new_task

CASES = [
    pytest.param(file.stem, case, id=f"{file.stem}: {title}")
    for file in sorted(Path(__file__).with_name("commands").glob("*.json"))
    for title, case in json.loads(file.read_text()).items()
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def task_of(name: str, case: dict[str, Any], folder: Path) -> Any:
    for path, text in case.get("files", {}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    extra = {key: case[key] for key in ("env", "become") if key in case}
    return new_task(name, case["args"], folder=str(folder), **extra)


@pytest.mark.parametrize(("name", "case"), CASES)
async def test_arguments_become_a_command(name: str, case: dict[str, Any], folder: Path) -> None:
    action = new_registry()[name]
    assert isinstance(action, CommandAction)
    task = task_of(name, case, folder)
    if "refused" in case:
        with pytest.raises(InvalidArguments) as refused:
            action.build(task)
        assert case["refused"] in str(refused.value)
        with pytest.raises(InvalidArguments):
            await action.check(task, UnreachableTransport())
        return
    expected = dict(case["command"])
    stdin = expected.pop("stdin", "").encode()
    assert action.build(task) == Command(
        **{**expected, "argv": tuple(expected["argv"]), "stdin": stdin}
    )
    check = await action.check(task, UnreachableTransport())
    assert (check.changed, check.summary) == (None, case["check"])


def test_every_command_action_has_cases() -> None:
    own = {name for name, action in new_registry().items() if isinstance(action, CommandAction)}
    assert {case.values[0] for case in CASES} == own


def test_a_script_file_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "huge.sh").write_bytes(b"#" * (1024 * 1024 + 1))
    action = new_registry()["script.shell"]
    assert isinstance(action, CommandAction)
    with pytest.raises(InvalidArguments, match="longer than 1048576 bytes"):
        action.build(new_task("script.shell", {"src": "huge.sh"}, folder=str(tmp_path)))
