"""The file store has no leases, batches or outbox; what it has, it does like any other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tenure.stores.file import FileStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts import (
    DefinitionsContract,
    DurabilityContract,
    EventLogContract,
    ManualTime,
    OneRetryContract,
    RunStateStoreContract,
    SharedStoreContract,
)

pytestmark = pytest.mark.slow


class Files(ManualTime):
    @pytest.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[FileStore]:
        store = FileStore(tmp_path, clock=clock)
        yield store
        await store.close()


class TestRuns(Files, RunStateStoreContract): ...


class TestEvents(Files, EventLogContract): ...


class TestDefinitions(Files, DefinitionsContract): ...


class TestOneRetry(Files, OneRetryContract): ...


class Twice(Files):
    @pytest.fixture
    async def reopened(
        self, store: FileStore, clock: ManualClock, tmp_path: Path
    ) -> AsyncIterator[FileStore]:
        second = FileStore(tmp_path, clock=clock)
        yield second
        await second.close()


class TestDurability(Twice, DurabilityContract): ...


class TestShared(Twice, SharedStoreContract): ...
