"""One table of exit codes: every error has its row, every row can be reached."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import tenure.cli
from tenure.cli.commands import version
from tenure.cli.commands.logs import NoSuchOutput
from tenure.cli.commands.token import NoSuchToken
from tenure.cli.context import NoRunsYet, NoSuchStore
from tenure.cli.errors import error_kinds, error_types
from tenure.cli.exit_codes import MEANING, OF_STATUS, Exit, verdict
from tenure.config import InvalidSettings
from tenure.gateway.problems import CannotListen, NotSafe
from tenure.model import errors
from tenure.model.errors import NotSupported
from tenure.model.status import TERMINAL_RUN, RunStatus
from tests.cli.conftest import Cli


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
        (errors.InvalidCursor, 2),
        (errors.UnknownStore, 2),
        (errors.InvalidWorkflow, 2),
        (errors.ExpressionError, 2),
        (errors.UnknownAction, 2),
        (InvalidSettings, 2),
        (errors.RunNotFound, 5),
        (errors.DeliveryNotFound, 5),
        (NoSuchOutput, 5),
        (NoRunsYet, 5),
        (NoSuchStore, 6),
        (errors.StoreUnavailable, 6),
        (errors.StoreIncompatible, 6),
        (errors.HostUnreachable, 6),
        (errors.RunExists, 7),
        (errors.LeaseHeld, 7),
        (errors.LeaseLost, 7),
        (errors.NotRunnable, 7),
        (errors.VersionConflict, 7),
        (errors.InvalidTransition, 7),
        (errors.StoreRejected, 7),
        (NotSupported, 7),
        (NotSafe, 7),
        (CannotListen, 6),
        (NoSuchToken, 5),
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


def test_every_code_is_explained() -> None:
    assert set(MEANING) == set(Exit)


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


def test_an_expected_error_shows_no_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(**given: Any) -> None:
        raise errors.LeaseHeld("run-00001", owner_id="worker-1", expires_at=None)

    monkeypatch.setattr(version.command, "callback", refusing)
    told = cli.call("version")
    assert told.code == 7
    assert told.err.startswith("Error: run run-00001: owned by worker-1\n  try again")
