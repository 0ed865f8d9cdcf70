"""What operators are told while workers are busy, killed or gone."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.system.workers.commanded import in_its_second_step, submitted
from tests.system.workers.conftest import ON_POSTGRES
from tests.system.workers.fleet import Fleet, Leases

pytestmark = pytest.mark.slow

NOBODY = "no worker serves queue 'default'; start one: tenure worker"


async def examined(fleet: Fleet, code: int = 0) -> Any:
    return json.loads(await fleet.command("doctor", "--json", code=code))


def unserved(runs: str) -> list[str]:
    return [f"{runs} in queue 'default', which no worker serves: tenure worker --queue default"]


@ON_POSTGRES
async def test_a_worker_that_has_its_hands_full_is_busy_at_once(fleet: Fleet) -> None:
    slow = {"TENURE_RECONCILE_INTERVAL": "300s"}
    worker = fleet.start("--concurrency", "1", env=slow)
    await in_its_second_step(fleet, worker, "first-of-two")
    await submitted(fleet, "second-of-two")
    said = await fleet.command("explain", "second-of-two")
    assert said == "queued; waits for the worker of queue 'default', busy"
    found = await examined(fleet)
    assert [each["running"] for each in found["store"]["workers"]] == [1]


@ON_POSTGRES
async def test_a_killed_worker_is_not_there_any_more(fleet: Fleet) -> None:
    fleet.leases = Leases(lease=60, renew=20)
    worker = fleet.start()
    before = await in_its_second_step(fleet, worker, "left-behind")
    await fleet.kill(worker)
    lost = f"its owner, process {worker.pid} on "
    for said in (
        await fleet.command("explain", "left-behind"),
        (await fleet.command("status", "left-behind")).splitlines()[1].strip(),
    ):
        assert said.startswith(lost)
        assert f"is gone; {NOBODY}" in said
    await submitted(fleet, "its-successor")
    assert (await fleet.command("explain", "its-successor")).startswith(f"queued; {NOBODY}")
    found = await examined(fleet, code=1)
    assert found["store"]["workers"] == []
    assert found["findings"] == unserved("2 runs wait")
    said = "1 run has lost its owner and resumes: a worker continues it"
    assert await fleet.command("reconcile") == said
    assert (await fleet.get("left-behind")).fence == before.fence


@ON_POSTGRES
async def test_a_run_given_back_to_nobody_is_complained_about(fleet: Fleet) -> None:
    worker = fleet.start()
    await in_its_second_step(fleet, worker, "given-back")
    worker.send(signal.SIGTERM)
    assert await worker.ends() == 0
    said = await fleet.command("explain", "given-back")
    assert said.startswith(f"given back by its owner; {NOBODY}")
    assert (await examined(fleet, code=1))["findings"] == unserved("1 run waits")
