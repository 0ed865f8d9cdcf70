"""The schema of callbacks is that of the code, and callbacks of real runs keep to it."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from tools import callback_schema
from tools.callback_schema import FILE, MEANING

import tenure
from tests.docs.fences import ROOT, blocks

GUIDE = ROOT / "docs" / "guides" / "callbacks.md"

FLOW = """
version: v1
name: page
inventory: {hosts: {here: {address: local}, there: {address: "ssh://nobody@nowhere.invalid"}}}
steps:
  - {name: good, targets: [here], action: cmd.run, args: {cmd: "true"}}
  - {name: bad, action: cmd.run, args: {cmd: "echo no space left >&2; exit 3"}}
"""


class Notes:
    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []

    async def notify(self, payload: tenure.CallbackPayload) -> None:
        self.taken.append(json.loads(msgspec.json.encode(payload)))


@pytest.fixture
def schema() -> Any:
    return json.loads(FILE.read_text())


@pytest.fixture
async def taken() -> list[dict[str, Any]]:
    """Everything a run says that fails in a step of two hosts."""
    notes = Notes()
    async with tenure.Runner(tenure.InMemoryStore(), notifier=notes) as runner:
        await runner.run(tenure.read_workflow(FLOW))
    return notes.taken


def valid(payload: object, schema: Any) -> bool:
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    return jsonschema.Draft202012Validator(schema, format_checker=checker).is_valid(payload)


def test_the_committed_schema_is_fresh() -> None:
    assert callback_schema.main(["--check"]) == 0


def test_a_stale_schema_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "callback.schema.json"
    assert callback_schema.main(["--check", "--folder", str(tmp_path)]) == 1
    assert callback_schema.main(["--folder", str(tmp_path)]) == 0
    assert callback_schema.main(["--check", "--folder", str(tmp_path)]) == 0
    file.write_text(file.read_text().replace('"integer"', '"number"'))
    assert callback_schema.main(["--check", "--folder", str(tmp_path)]) == 1
    assert "run `make docs`" in capsys.readouterr().err


def test_the_schema_itself_is_sound(schema: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)


def test_what_a_real_run_says_keeps_to_it(schema: Any, taken: list[dict[str, Any]]) -> None:
    types = {payload["type"] for payload in taken}
    assert {"run.running", "step.success", "host.failed", "host.unreachable", "run.failed"} <= types
    assert all(valid(payload, schema) for payload in taken)
    assert taken[-1]["error"]["failed_hosts"] == ["here", "there"]


def test_what_is_no_callback_does_not(schema: Any, taken: list[dict[str, Any]]) -> None:
    last = taken[-1]
    for field in last:
        assert not valid({name: value for name, value in last.items() if name != field}, schema)
    for field, wrong in {"seq": -1, "version": "3", "run_status": "done", "error": "no"}.items():
        assert not valid(last | {field: wrong}, schema)
    nameless = deepcopy(last)
    del nameless["error"]["kind"]
    assert not valid(nameless, schema)
    assert valid(last | {"added_later": 1}, schema)


def test_the_guide_explains_every_field_and_its_example_keeps_to_the_schema(schema: Any) -> None:
    text = GUIDE.read_text()
    for fields in MEANING.values():
        assert [name for name in fields if f'"{name}"' not in text] == []
    [example] = blocks("json callback")
    assert valid(json.loads(example.body), schema)
