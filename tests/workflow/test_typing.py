"""What works at run time, a type checker accepts; what it shows afterwards is what is held."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tenure.workflow import given, spec

ROOT = Path(__file__).parents[2]
TAKEN = {
    spec.Retries: given.RetriesGiven,
    spec.Verify: given.VerifyGiven,
    spec.Handler: given.HandlerGiven,
    spec.Step: given.StepGiven,
    spec.Defaults: given.DefaultsGiven,
    spec.PlanSettings: given.PlanGiven,
    spec.Workflow: given.WorkflowGiven,
}


@pytest.mark.parametrize("part", TAKEN, ids=lambda part: part.__name__)
def test_a_checker_knows_every_field(part: type[msgspec.Struct]) -> None:
    optional = {field.name for field in msgspec.structs.fields(part) if not field.required}
    assert TAKEN[part].__optional_keys__ == optional  # type: ignore[attr-defined]


def test_every_part_that_converts_something_tells_the_checker() -> None:
    converting = spec.DURATION_FIELDS | spec._ENUM_FIELDS.keys()
    parts = {
        part
        for part in vars(spec).values()
        if isinstance(part, type) and issubclass(part, spec._Part) and part.__name__[0] != "_"
    }
    assert {part for part in parts if converting & set(part.__struct_fields__)} == set(TAKEN)


@pytest.mark.slow
def test_a_users_program_is_accepted_in_strict_mode(tmp_path: Path) -> None:
    program = Path(__file__).with_name("typed_use.py")
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores"]
    checked = subprocess.run(
        [*command, f"--cache-dir={tmp_path}", "--config-file=", str(program)],
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout) == (
        0,
        "Success: no issues found in 1 source file\n",
    ), checked.stdout + checked.stderr
