"""A runner that is killed: whatever its journal says is told by the next, under the same ids."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import tenure
from tenure.model.status import DeliveryState, RunStatus
from tenure.ports.environment import BootTime
from tenure.stores.sqlite import SQLiteStore
from tenure.system import SystemClock
from tests.notifiers.receiver import Receiver
from tests.runtime_relay.hooks import AT_ONCE, firsts, place, types
from tests.runtime_relay.runner_process import teller

RUN_ID = "a-run-that-was-killed"


class LaterToday(SystemClock):
    """Every claim of the dead has run out."""

    def boot_time(self) -> BootTime:
        now = super().boot_time()
        return BootTime(now.boot_id, now.nanoseconds + 3600 * 10**9)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["ok", "gate"])
async def test_a_killed_runner_leaves_nothing_untold(tmp_path: Path, path: str) -> None:
    """``ok``: killed when some had arrived; ``gate``: killed while the first was on its way."""
    database = tmp_path / "runs.db"
    async with Receiver() as receiver:
        url = f"sqlite:///{database}"
        assert await asyncio.to_thread(_kill_when_begun, url, receiver.url(path)) == -9
        receiver.gate.set()
        async with await SQLiteStore.open(database, LaterToday()) as store:
            async with tenure.Runner(store, callbacks=AT_ONCE) as runner:
                assert (await runner.get_run(RUN_ID)).status is RunStatus.INTERRUPTED
            journal = [each for each in await store.read_events(RUN_ID) if each.status is not None]
            owed = (await store.list_deliveries(limit=500)).items
    told = firsts(receiver.received)
    assert [place(each) for each in told] == [event.position for event in journal]
    assert types(told)[-1] == "run.interrupted"
    assert {each.state for each in owed} == {DeliveryState.DELIVERED}
    assert {each.headers["webhook-id"] for each in told} == {each.id for each in owed}


def _kill_when_begun(url: str, hook: str) -> int | None:
    with teller(url, RUN_ID, hook) as process:
        process.kill()
        process.wait()
        return process.returncode
