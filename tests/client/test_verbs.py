"""An operator's runner and command line on a gateway: every change goes through a verb."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.client import HttpStore
from tenure.model.errors import (
    InvalidOptions,
    InvalidTransition,
    NotPermitted,
    RunExists,
    RunNotFound,
    StoreUnavailable,
)
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import Recovery
from tenure.model.tokens import Role, Token, digest_of, written
from tenure.runner import RetryOptions
from tenure.stores.memory import InMemoryStore
from tenure.testing.contracts.acts import create
from tenure.testing.factories import annotate, new_run
from tenure.workflow.spec import CallbackSpec
from tests.remote_store.front import gateway

FILES = """\
version: v1
name: files
steps: [{name: send, action: file.copy, args: {src: app.conf, dest: /tmp/app.conf}}]
inventory: {hosts: {web1: {address: local}, web2: {address: local}}}
"""
ASKS = """\
version: v1
name: asks
plan: {mode: manual-approve}
steps: [{name: hello, action: cmd.run, args: {cmd: "true"}}]
inventory: {hosts: {web1: {address: local}}}
"""


@pytest.fixture
async def kept() -> InMemoryStore:
    store = InMemoryStore()
    for role in (Role.OPERATOR, Role.ADMIN):
        digest = digest_of("secret")
        await store.add_token(Token(id=role, name=f"the {role}", role=role, digest=digest))
    return store


@pytest.fixture
async def address(kept: InMemoryStore) -> AsyncIterator[str]:
    async with gateway(kept) as address:
        yield address


@pytest.fixture
async def runner(address: str) -> AsyncIterator[tenure.Runner]:
    """An operator's."""
    token = written(Role.OPERATOR, "secret")
    async with HttpStore(address, token) as store, tenure.Runner(store) as runner:
        yield runner


async def said(kept: InMemoryStore, run_id: str) -> list[tuple[str, str | None]]:
    events = await kept.read_events(run_id)
    return [(event.type, (event.data or {}).get("by")) for event in events]


async def test_a_submitted_run_is_what_its_workflow_says(
    kept: InMemoryStore, runner: tenure.Runner, tmp_path: Path
) -> None:
    (tmp_path / "app.conf").write_text("a = 1")
    (tmp_path / "flow.yaml").write_text(FILES)
    file = tenure.load_workflow(tmp_path / "flow.yaml")
    options = tenure.RunOptions(
        run_id="mine-0001",
        vars={"release": "1.4"},
        labels={"team": "web"},
        callbacks=[CallbackSpec(url="https://example.com/?key=hush", headers={"X-Key": "hush"})],
        queue="web",
        priority=7,
        recovery=Recovery.INTERRUPT,
        timeout=60.0,
        limit=["web1"],
        approved_by="the-ceo",
        requested_by="the-ceo",
    )
    run = await runner.submit(file, options)
    stored = await kept.get_run("mine-0001")
    assert run.run_id == "mine-0001"
    assert (stored.workflow_name, stored.queue, stored.priority) == ("files", "web", 7)
    assert (stored.vars, stored.labels) == ({"release": "1.4"}, {"team": "web"})
    assert (stored.recovery, stored.timeout) == ("interrupt", 60.0)
    assert [list(step.hosts) for step in stored.steps] == [["web1"]]
    assert [target.headers for target in stored.callbacks] == [{"X-Key": "hush"}]
    assert "YSA9IDE=" in str(await kept.get_definition("mine-0001"))
    assert await said(kept, "mine-0001") == [("run.queued", "the operator")]
    with pytest.raises(RunExists):
        await runner.submit(file, options)


async def test_operators_change_runs_in_their_own_name(
    kept: InMemoryStore, runner: tenure.Runner, tmp_path: Path
) -> None:
    (tmp_path / "flow.yaml").write_text(ASKS)
    run = await runner.submit(tenure.load_workflow(tmp_path / "flow.yaml"))
    approved = await runner.approve(run.run_id, by="the-ceo", note="fine")
    assert (approved.approval.by, approved.approval.note) == ("the operator", "fine")
    await runner.annotate(run.run_id, {"found": "later"}, by="the-ceo")
    canceled = await runner.cancel(run.run_id, reason="enough", by="the-ceo")
    assert (canceled.status, canceled.cancel_reason) == ("canceled", "enough")
    assert (await runner.end_abandoned()).interrupted == ()
    again = await runner.submit_retry(run.run_id, RetryOptions(approved_by="the-ceo"))
    assert (again.retry_of, again.approval.by) == (run.run_id, "the operator")
    by = {each for run_id in (run.run_id, again.run_id) for _, each in await said(kept, run_id)}
    assert by == {"the operator", None}
    with pytest.raises(InvalidTransition):
        await runner.approve(run.run_id, by="somebody")
    with pytest.raises(RunNotFound):
        await runner.cancel("nowhere-1")


async def test_a_run_whose_answer_is_lost_is_made_once(
    kept: InMemoryStore, address: str, tmp_path: Path
) -> None:
    """The same request again, with and without an id of one's own."""

    class Deaf(HttpStore):
        heard = 0

        async def submit_run(self, *request: Any) -> RunSnapshot:
            run = await super().submit_run(*request)
            self.heard += 1
            if self.heard % 2:
                raise StoreUnavailable("the answer was lost")
            return run

    (tmp_path / "flow.yaml").write_text(ASKS)
    file = tenure.load_workflow(tmp_path / "flow.yaml")
    async with (
        Deaf(address, written(Role.OPERATOR, "secret")) as store,
        tenure.Runner(store) as runner,
    ):
        first = await runner.submit(file)
        store.heard = 0
        second = await runner.submit(file, tenure.RunOptions(run_id="mine-0002"))
    assert second.run_id == "mine-0002"
    runs = (await kept.list_runs()).items
    assert {run.run_id for run in runs} == {first.run_id, "mine-0002"}


async def test_what_only_a_store_can_do_is_refused(
    kept: InMemoryStore, runner: tenure.Runner, address: str, tmp_path: Path
) -> None:
    (tmp_path / "flow.yaml").write_text(ASKS.replace("manual-approve", "auto"))
    file = tenure.load_workflow(tmp_path / "flow.yaml")
    with pytest.raises(InvalidOptions, match="retry_of"):
        await runner.submit(file, tenure.RunOptions(retry_of="old-1"))
    with pytest.raises(NotPermitted):
        await runner.run(file, tenure.RunOptions(run_id="here-0001"))
    run = await create(kept)
    async with HttpStore(address, written(Role.OPERATOR, "secret")) as store:
        with pytest.raises(NotPermitted):
            await store.update_run(annotate(run, found="later"))
        with pytest.raises(NotPermitted):
            await store.create_run(new_run())
    async with (
        HttpStore(address, written(Role.ADMIN, "secret")) as store,
        tenure.Runner(store) as admins,
    ):
        done = await admins.run(file, tenure.RunOptions(run_id="here-0002"))
    assert done.status == "success"


async def test_the_command_line_of_an_operator(
    kept: InMemoryStore, address: str, tmp_path: Path
) -> None:
    (tmp_path / "flow.yaml").write_text(ASKS)
    environment = {**os.environ, "TENURE_TOKEN": written(Role.OPERATOR, "secret")}

    async def tenure_(*words: str) -> str:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tenure",
            *words,
            f"--store={address}",
            cwd=tmp_path,
            env=environment,
            stdout=PIPE,
        )
        out, _ = await process.communicate()
        assert process.returncode == 0
        return out.decode().strip()

    run_id = await tenure_("submit", "flow.yaml")
    await tenure_("approve", run_id, "--by=the-ceo", "--no-run")
    await tenure_("annotate", run_id, "ticket=OPS-42")
    await tenure_("cancel", run_id)
    await tenure_("reconcile")
    assert {by for _, by in await said(kept, run_id)} == {"the operator", None}
    run = await kept.get_run(run_id)
    assert (run.status, run.approval.by) == ("canceled", "the operator")
