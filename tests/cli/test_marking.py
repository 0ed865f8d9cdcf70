"""Every command that writes first marks the runs of processes that are gone."""

from __future__ import annotations

import asyncio

import pytest

from tenure.stores.sqlite import SQLiteStore
from tenure.testing.factories import embedded_run, start_step
from tests.cli.conftest import Cli
from tests.cli.flows import GREET

pytestmark = pytest.mark.slow

LEFT = "left-running"


async def leave_running(path: str, owner_id: str) -> None:
    async with await SQLiteStore.open(path) as store:
        await store.create_run(embedded_run(owner_id, run_id=LEFT))
        await store.update_run(start_step(await store.get_run(LEFT)))


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "flow.yaml", "-q"),
        ("annotate", "other-run", "ticket=OPS-1"),
        ("cancel", "other-run"),
        ("reconcile",),
        ("store", "prune", "--older-than", "1d"),
        ("store", "migrate"),
        ("callbacks", "redeliver", "--dead"),
    ],
    ids=" ".join,
)
def test_the_next_command_that_writes_marks_them(
    cli: Cli, arguments: tuple[str, ...], dead_owner: str
) -> None:
    store = ("--store", "sqlite:///runs.db")
    cli.call("run", cli.workflow(GREET), "-q", "--run-id", "other-run", *store)
    asyncio.run(leave_running("runs.db", dead_owner))
    assert cli.call(*arguments, *store).code == 0
    record = cli.call("status", LEFT, "--json", *store).json
    assert record["status"] == "interrupted"
    assert {step["status"] for step in record["steps"]} == {"interrupted"}


@pytest.mark.parametrize(
    "arguments",
    [("list",), ("status", LEFT), ("explain", LEFT), ("store", "check"), ("callbacks", "list")],
    ids=" ".join,
)
def test_a_command_that_only_looks_changes_nothing(
    cli: Cli, arguments: tuple[str, ...], dead_owner: str
) -> None:
    store = ("--store", "sqlite:///runs.db")
    asyncio.run(leave_running("runs.db", dead_owner))
    assert cli.call(*arguments, *store).code == 0
    assert cli.call("status", LEFT, "--json", *store).json["status"] == "running"
