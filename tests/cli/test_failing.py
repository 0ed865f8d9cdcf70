"""Errors for programs: one JSON object as the last line of stderr, with a type that stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tenure.cli.commands import version
from tenure.cli.errors import type_of
from tenure.model.errors import LeaseHeld, RunNotFound, StoreUnavailable
from tests.cli.conftest import Answer, Cli
from tests.cli.flows import GREET

pytestmark = pytest.mark.slow


def error_of(answer: Answer) -> dict[str, Any]:
    """What a program would make of it."""
    assert answer.out == ""
    said: dict[str, Any] = json.loads(answer.err.splitlines()[-1])
    assert said.keys() == {"error"}
    error: dict[str, Any] = said["error"]
    assert error["exit_code"] == answer.code
    assert error["message"]
    return error


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (["stauts"], 2, "usage"),
        (["list", "--limit", "many"], 2, "usage"),
        (["status"], 2, "usage"),
        (["store", "prune"], 2, "usage"),
        (["run", "flow.yaml", "--var", "a b=1"], 2, "usage"),
        (["run", "flow.yaml", "--limit", "nobody"], 2, "usage"),
        (["run", "none.yaml"], 2, "invalid-workflow"),
        (["run", "flow.yaml", "--run-id", "x"], 2, "invalid-run-id"),
        (["run", "flow.yaml", "--run-id", "used-run-01"], 7, "run-exists"),
        (["status", "x"], 2, "invalid-run-id"),
        (["status", "no-such-run"], 5, "run-not-found"),
        (["logs", "latest", "no-such-step"], 5, "no-such-output"),
        (["list", "--cursor", "made-up"], 2, "invalid-cursor"),
        (["list", "--store", "runs.db"], 2, "invalid-settings"),
        (["list", "--store", "mongo://x"], 2, "unknown-store"),
        (["list", "--store", "sqlite:///none.db"], 6, "no-such-store"),
        (["list", "--store", "sqlite:///flow.yaml"], 6, "store-incompatible"),
        (["store", "check", "--store", "memory:"], 7, "not-supported"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_every_error_is_an_object_with_a_type(
    cli: Cli, arguments: list[str], code: int, kind: str
) -> None:
    cli.call("run", cli.workflow(GREET), "-q", "--run-id", "used-run-01")
    answer = cli.call(*arguments, "--json")
    assert answer.code == code
    assert error_of(answer)["type"] == kind


def test_a_wrong_workflow_lists_its_problems_with_their_places(cli: Cli) -> None:
    flow = cli.workflow(
        "version: v1\nname: x\nsteps:\n  - name: a\n    action: cmd.rum\n    x: 1\n"
    )
    problems = error_of(cli.call("run", flow, "--json"))["problems"]
    assert [(each["line"], each["column"], each["path"]) for each in problems] == [
        (5, 13, "steps[0].action"),
        (6, 5, "steps[0].x"),
    ]
    assert problems[0]["hint"] == "did you mean 'cmd.run'?"


def test_wrong_settings_list_their_problems(cli: Cli) -> None:
    (cli.folder / "tenure.toml").write_text('stoer = "memory:"\nclaim_batch = 0\n')
    error = error_of(cli.call("list", "--json"))
    assert len(error["problems"]) == 2
    assert "did you mean 'store'?" in error["problems"][0]["message"]
    assert "tenure doctor" in error["advice"]


def test_facts_a_program_would_have_to_cut_out_of_the_message(cli: Cli) -> None:
    cli.call("run", cli.workflow(GREET), "-q")
    error = error_of(cli.call("status", "no-such-run", "--json"))
    assert error["run_id"] == "no-such-run"
    assert "tenure list" in error["advice"]


def test_a_file_name_that_is_no_text_does_not_cost_the_answer(cli: Cli) -> None:
    assert error_of(cli.call("run", "\udcff.yaml", "--json"))["type"] == "invalid-workflow"


def test_a_defect_is_an_object_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**given: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(version.command, "callback", broken)
    error = error_of(cli.call("version", "--json"))
    assert (error["type"], error["exit_code"]) == ("defect", 70)
    assert "RuntimeError: a bug" in error["traceback"]


def test_being_stopped_is_an_object_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(**given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(version.command, "callback", stopped)
    assert error_of(cli.call("version", "--json"))["type"] == "stopped"
    assert cli.call("version").err == "Error: stopped before the answer\n"


def test_types_are_those_of_the_classes_whoever_derives_from_them() -> None:
    class TheirStoreIsDown(StoreUnavailable):
        pass

    assert type_of(RunNotFound) == "run-not-found"
    assert type_of(LeaseHeld) == "lease-held"
    assert type_of(TheirStoreIsDown) == "store-unavailable"
