"""The file store has no leases, batches or outbox; what it has, it does like any other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest

from tenure.stores.file import FileStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts import (
    DefinitionsContract,
    DurabilityContract,
    EventLogContract,
    FaultSweep,
    ManualTime,
    OneRetryContract,
    RunStateStoreContract,
    SharedStoreContract,
)
from tenure.testing.contracts.harness import OpenStore

pytestmark = pytest.mark.slow


class Files(FaultSweep, ManualTime):
    max_swept_calls = 1

    @pytest.fixture
    def open_store(self, clock: ManualClock, tmp_path: Path) -> OpenStore:
        folders = (tmp_path / str(number) for number in count())
        return lambda: FileStore(next(folders), clock=clock)


class TestRuns(Files, RunStateStoreContract): ...


class TestEvents(Files, EventLogContract): ...


class TestDefinitions(Files, DefinitionsContract): ...


class TestOneRetry(Files, OneRetryContract): ...


class Twice(ManualTime):
    @pytest.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[FileStore]:
        store = FileStore(tmp_path, clock=clock)
        yield store
        await store.close()

    @pytest.fixture
    async def reopened(
        self, store: FileStore, clock: ManualClock, tmp_path: Path
    ) -> AsyncIterator[FileStore]:
        second = FileStore(tmp_path, clock=clock)
        yield second
        await second.close()


class TestDurability(Twice, DurabilityContract): ...


class TestShared(Twice, SharedStoreContract): ...
