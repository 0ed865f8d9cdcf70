"""A task can kill the supervisor that it shares with the tasks of other runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tenure
from tenure.model.status import HostStatus, RunStatus
from tenure.workflow.spec import OnTakeover, Step, Verify
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import shell, step, workflow

pytestmark = pytest.mark.slow

KILLS = "kill -9 $PPID; sleep 20"
KILLS_ONCE = 'case "$TENURE_TASK_ID" in *:1) sleep 0.5; kill -9 $PPID; sleep 20;; esac; echo done'


def killing(script: str, **fields: Any) -> Step:
    return shell("one", script, **fields)


async def test_what_another_run_did_to_the_supervisor_is_made_good_by_a_further_attempt(
    new_runner: NewRunner,
) -> None:
    runner = new_runner("memory:")
    other = 'case "$TENURE_TASK_ID" in *:1) sleep 20;; esac; echo there'
    run, killer = await asyncio.gather(
        runner.run(workflow(shell("one", other))),
        runner.run(workflow(killing(KILLS_ONCE))),
    )
    for each, said in ((run, "there\n"), (killer, "done\n")):
        assert each.status is RunStatus.SUCCESS
        host = each.steps[0].hosts["local"]
        assert (host.status, host.attempts, host.stdout) == (HostStatus.SUCCESS, 2, said)
        assert (host.message, each.unconfirmed_hosts, each.takeovers) == (None, (), 0)


async def test_loop_items_too(new_runner: NewRunner) -> None:
    run = await new_runner("memory:").run(workflow(killing(KILLS_ONCE, loop=["x", "y"])))
    assert run.status is RunStatus.SUCCESS
    assert [item.attempts for item in run.steps[0].hosts["local"].items] == [2, 2]


async def test_a_task_that_kills_every_supervisor_fails_in_the_end(new_runner: NewRunner) -> None:
    runner = new_runner("memory:")
    run = await runner.run(workflow(killing(KILLS), step("two")))
    assert run.status is RunStatus.FAILED
    host = run.steps[0].hosts["local"]
    assert (host.status, host.attempts) == (HostStatus.FAILED, 6)
    assert "lost 6 supervisors" in (host.message or "")
    assert run.error is not None
    assert run.error.kind == "supervisor_lost"


async def test_on_takeover_fail(new_runner: NewRunner) -> None:
    run = await new_runner("memory:").run(workflow(killing(KILLS, on_takeover=OnTakeover.FAIL)))
    assert run.status is RunStatus.FAILED
    host = run.steps[0].hosts["local"]
    assert (host.attempts, host.kind) == (1, "takeover")
    assert host.message == "its supervisor was lost while it ran; on_takeover says fail"


async def test_on_takeover_ask(new_runner: NewRunner) -> None:
    asking = killing(KILLS, on_takeover=OnTakeover.ASK)
    run = await new_runner("memory:").run(workflow(asking, step("two")))
    assert run.status is RunStatus.INTERRUPTED
    assert "when its supervisor was lost" in (run.interrupted_reason or "")
    assert run.steps[0].hosts["local"].status is HostStatus.INTERRUPTED
    assert run.unconfirmed_hosts == (), "it is shown to be gone"


@pytest.mark.parametrize(("probe", "attempts"), [("true", 1), ("exit 1", 2)])
async def test_on_takeover_verify(new_runner: NewRunner, probe: str, attempts: int) -> None:
    verified = killing(KILLS_ONCE, verify=Verify(cmd=probe))
    run = await new_runner("memory:").run(workflow(verified))
    assert run.status is RunStatus.SUCCESS
    assert run.steps[0].hosts["local"].attempts == attempts


async def test_a_retry_is_not_used_up(new_runner: NewRunner) -> None:
    script = 'case "$TENURE_TASK_ID" in *:1) kill -9 $PPID; sleep 20;; *:2) exit 3;; esac'
    run = await new_runner("memory:").run(
        workflow(killing(script, retries=tenure.Retries(max=1, delay=0.01)))
    )
    assert run.status is RunStatus.SUCCESS
    assert run.steps[0].hosts["local"].attempts == 3
