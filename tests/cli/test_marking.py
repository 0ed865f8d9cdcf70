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
    ("arguments", "code"),
    [
        (("run", "flow.yaml", "-q"), 0),
        (("submit", "flow.yaml"), 0),
        (("annotate", "other-run", "ticket=OPS-1"), 0),
        (("annotate", "unknown-run", "ticket=OPS-1"), 5),
        (("cancel", "other-run"), 0),
        (("cancel", "unknown-run"), 5),
        (("cancel", "no/run"), 2),
        (("reconcile",), 0),
        (("store", "prune", "--older-than", "1d"), 0),
        (("store", "migrate"), 0),
        (("callbacks", "redeliver", "--dead"), 0),
        (("token", "create", "ci", "--role", "viewer"), 0),
        (("token", "revoke", "old"), 0),
        (("token", "revoke", "unknown"), 5),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_the_next_command_that_writes_marks_them_and_says_so(
    cli: Cli, arguments: tuple[str, ...], code: int, dead_owner: str
) -> None:
    store = ("--store", "sqlite:///runs.db")
    cli.call("run", cli.workflow(GREET), "-q", "--run-id", "other-run", *store)
    cli.call("token", "create", "old", "--role", "viewer", *store)
    asyncio.run(leave_running("runs.db", dead_owner))
    done = cli.call(*arguments, *store)
    assert done.code == code
    said = done.out if arguments == ("reconcile",) else done.err
    assert "marked" in said
    assert LEFT in said
    record = cli.call("status", LEFT, "--json", *store).json
    assert record["status"] == "interrupted"
    assert {step["status"] for step in record["steps"]} == {"interrupted"}


def test_who_cancels_the_run_itself_is_told_once(cli: Cli, dead_owner: str) -> None:
    store = ("--store", "sqlite:///runs.db")
    asyncio.run(leave_running("runs.db", dead_owner))
    done = cli.call("cancel", LEFT, *store)
    assert (done.out, done.err) == (f"{LEFT} is canceled\n", "")


def test_a_token_makes_its_store(cli: Cli) -> None:
    made = cli.call("token", "create", "ci", "--role", "viewer", "--store", "sqlite:///new.db")
    assert made.code == 0


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
