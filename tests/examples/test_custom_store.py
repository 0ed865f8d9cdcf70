"""The example runs, and it keeps the contract it is meant to show; also on a bad day."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import pytest
from examples.custom_store import DocumentStore, KeyValueService, main

from tenure.ports.store import RunStateStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts import FaultSweep, ManualTime, RunStateStoreContract
from tenure.testing.contracts.acts import create
from tenure.testing.contracts.harness import OpenStore
from tenure.testing.factories import annotate
from tenure.testing.machine import run_store_machine

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_store.py"


class BusyService(KeyValueService):
    """Others get their turn during each call, as over a network."""

    lost_races = 0

    async def get(self, key: str) -> bytes | None:
        await asyncio.sleep(0)
        return await super().get(key)

    async def replace(self, key: str, old: bytes | None, new: bytes) -> bool:
        await asyncio.sleep(0)
        replaced = await super().replace(key, old, new)
        self.lost_races += not replaced
        return replaced


class TestContract(FaultSweep, ManualTime, RunStateStoreContract):
    max_swept_calls = 1

    @pytest.fixture
    def open_store(self, clock: ManualClock) -> OpenStore:
        return lambda: nullcontext(DocumentStore(BusyService(), clock))


async def test_a_writer_who_lost_the_race_starts_over() -> None:
    service = BusyService()
    store = DocumentStore(service)
    run = await create(store)
    await asyncio.gather(*(store.update_run(annotate(run, number=number)) for number in range(5)))
    notes = (await store.get_run(run.run_id)).annotations
    assert sorted(note.data["number"] for note in notes) == list(range(5))
    assert service.lost_races


@pytest.mark.slow
def test_random_histories_agree_with_the_model() -> None:
    @asynccontextmanager
    async def opened(clock: ManualClock) -> AsyncIterator[RunStateStore]:
        yield DocumentStore(KeyValueService(), clock)

    run_store_machine(opened, examples=10)


async def test_main_tells_its_story(capsys: pytest.CaptureFixture[str]) -> None:
    await main()
    asked, *listed = capsys.readouterr().out.splitlines()
    assert "asked to stop: 'wrong release'" in asked
    assert [line.split() for line in listed] == [
        ["deploy-1.4", "running", "version", "2"],
        ["nightly-backup-1", "canceled", "version", "2"],
    ]


def test_runs_as_a_script() -> None:
    ended = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "nightly-backup-1" in ended.stdout
