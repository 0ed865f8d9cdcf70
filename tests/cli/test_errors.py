"""One table of exit codes: every error has its row, and for programs is one JSON object as the last
line of stderr."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import tenure.cli
from tenure.cli.commands import version
from tenure.cli.commands.logs import NoSuchOutput
from tenure.cli.context import NoSuchStore
from tenure.cli.errors import error_kinds, error_types
from tenure.cli.exit_codes import OF_STATUS, Exit, verdict
from tenure.config import InvalidSettings
from tenure.gateway.problems import CannotListen
from tenure.model import errors
from tenure.model.errors import NotSupported
from tenure.model.status import TERMINAL_RUN, RunStatus
from tests.cli.conftest import Answer, Cli
from tests.cli.flows import GREET


def of_kind(kind: type[errors.TenureError]) -> errors.TenureError:
    return kind.__new__(kind)


@pytest.mark.parametrize("kind", error_kinds(), ids=lambda kind: kind.__name__)
def test_every_error_has_an_exit_code(kind: type[errors.TenureError]) -> None:
    code, _ = verdict(of_kind(kind))
    assert code in (Exit.USAGE, Exit.NOT_FOUND, Exit.STORE, Exit.REFUSED)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.InvalidRunId, 2),
        (errors.InvalidWorkflow, 2),
        (InvalidSettings, 2),
        (errors.RunNotFound, 5),
        (NoSuchOutput, 5),
        (NoSuchStore, 6),
        (errors.StoreUnavailable, 6),
        (errors.HostUnreachable, 6),
        (errors.RunExists, 7),
        (errors.LeaseLost, 7),
        (errors.VersionConflict, 7),
        (NotSupported, 7),
        (CannotListen, 6),
    ],
    ids=lambda value: value.__name__ if inspect.isclass(value) else "",
)
def test_errors_and_their_codes(kind: type[errors.TenureError], code: int) -> None:
    assert verdict(of_kind(kind))[0] == code


def test_every_end_of_a_run_has_a_code_of_its_own() -> None:
    assert {RunStatus(status) for status in OF_STATUS} == TERMINAL_RUN
    assert {status: int(code) for status, code in OF_STATUS.items()} == {
        "success": 0,
        "failed": 1,
        "canceled": 3,
        "interrupted": 4,
    }


def test_every_kind_of_error_has_a_type_of_its_own() -> None:
    """Also those of modules nobody thought of when the list was written."""
    for module in pkgutil.walk_packages(tenure.cli.__path__, "tenure.cli."):
        importlib.import_module(module.name)
    listed = set(error_kinds())
    assert not {kind for kind in raised(errors.TenureError) if kind not in listed}
    assert len(error_types()) == len(listed) + 4


def raised(kind: type[errors.TenureError]) -> Iterator[type[errors.TenureError]]:
    inner = [
        each
        for each in kind.__subclasses__()
        if each.__module__.startswith("tenure.")
        # A sender answers and never raises; a broker keeps what it means by it to itself; what the
        # gateway has against a request becomes its answer.
        and not each.__module__.startswith(
            ("tenure.notifiers.", "tenure.brokers.", "tenure.gateway.problems")
        )
    ]
    if not inner:
        yield kind
    for each in inner:
        yield from raised(each)


def test_a_defect_shows_its_traceback_and_has_a_code_of_its_own(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**given: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(version.command, "callback", broken)
    told = cli.call("version")
    assert told.code == 70
    assert "RuntimeError: a bug" in told.err
    assert "defect of Tenure" in told.err


def error_of(answer: Answer) -> dict[str, Any]:
    """What a program would make of it."""
    assert answer.out == ""
    said: dict[str, Any] = json.loads(answer.err.splitlines()[-1])
    assert said.keys() == {"error"}
    error: dict[str, Any] = said["error"]
    assert error["exit_code"] == answer.code
    assert error["message"]
    return error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (["stauts"], 2, "usage"),
        (["status"], 2, "usage"),
        (["run", "none.yaml"], 2, "invalid-workflow"),
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_wrong_settings_list_their_problems(cli: Cli) -> None:
    (cli.folder / "tenure.toml").write_text('stoer = "memory:"\nclaim_batch = 0\n')
    error = error_of(cli.call("list", "--json"))
    assert len(error["problems"]) == 2
    assert "did you mean 'store'?" in error["problems"][0]["message"]
    assert "tenure doctor" in error["advice"]


@pytest.mark.slow
def test_a_defect_is_an_object_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**given: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(version.command, "callback", broken)
    error = error_of(cli.call("version", "--json"))
    assert (error["type"], error["exit_code"]) == ("defect", 70)
    assert "RuntimeError: a bug" in error["traceback"]


@pytest.mark.slow
def test_being_stopped_is_an_object_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(**given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(version.command, "callback", stopped)
    assert error_of(cli.call("version", "--json"))["type"] == "stopped"
    assert cli.call("version").err == "Error: stopped before the answer\n"
