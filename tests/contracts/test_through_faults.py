"""The contracts hold on a bad day: one call in a hundred, or in ten, goes wrong, and the client
only ever sends the same call again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tenure.model.errors import StoreUnavailable
from tenure.ports.lease_store import LeaseStore
from tenure.ports.outbox import Outbox
from tenure.ports.run_store import RunStateStore
from tenure.stores.file import FileStore
from tenure.stores.memory import InMemoryStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts import (
    BatchUpdatesContract,
    BeginningsContract,
    CensusContract,
    ChangeFeedContract,
    DefinitionsContract,
    DurabilityContract,
    EventLogContract,
    KeptApartContract,
    LastRecordsContract,
    LeaseStoreContract,
    LogListingContract,
    LogSizesContract,
    LogStoreContract,
    ManualTime,
    OutboxBatchesContract,
    OutboxContract,
    OutboxRetentionContract,
    OutputRetentionContract,
    OwnerListingContract,
    OwnershipEventsContract,
    RetentionContract,
    RetentionCountsContract,
    RunStateStoreContract,
    RunVersionsContract,
    SharedLeasesContract,
    SharedStoreContract,
    StoreClockContract,
    TokenStoreContract,
    UpkeepContract,
    WakeupsContract,
    WorkerRegistryContract,
)
from tenure.testing.contracts.lease_batches import ClaimsInBatches
from tenure.testing.contracts.lease_claims import Claims
from tenure.testing.contracts.lease_reconcile import Reconciling
from tenure.testing.contracts.lease_renewal import Renewals
from tenure.testing.contracts.lease_takeover import Takeovers
from tenure.testing.contracts.run_approval import RunApproval
from tenure.testing.contracts.run_endings import RunEndings
from tenure.testing.contracts.run_operators import OperatorUpdates
from tenure.testing.contracts.run_updates import RunUpdates
from tenure.testing.factories import new_run
from tenure.testing.faults import METHODS, Fault, FaultyStore, RetryingStore
from tests.postgres.database import ServersClock, TestDatabase
from tests.postgres.pooler import Pooler
from tests.postgres.warm import warm_store
from tests.runtime.puppets import Between
from tests.stores.sqlite_files import SQLiteFiles

pytestmark = pytest.mark.slow


def through_faults(store: Any, request: pytest.FixtureRequest, rate: float) -> Any:
    """Every test meets faults of its own, and the same ones each time."""
    seed = crc32(request.node.nodeid.encode())
    return RetryingStore(FaultyStore(store, seed=seed, rate=rate))


@pytest.mark.parametrize("rate", [0.01, 0.10], ids=["file-1%", "file-10%"])
class FilesThroughFaults(ManualTime):
    @pytest.fixture
    async def store(
        self, rate: float, clock: ManualClock, tmp_path: Path, request: pytest.FixtureRequest
    ) -> AsyncIterator[Any]:
        store = FileStore(tmp_path, clock=clock)
        yield through_faults(store, request, rate)
        await store.close()


class TestRunsInFiles(FilesThroughFaults, RunStateStoreContract): ...


class TestEventsInFiles(FilesThroughFaults, EventLogContract): ...


class TestDefinitionsInFiles(FilesThroughFaults, DefinitionsContract): ...


class EitherThroughFaults(ManualTime):
    @pytest.fixture
    async def store(
        self,
        kind: str,
        rate: float,
        clock: ManualClock,
        sqlite_files: SQLiteFiles,
        request: pytest.FixtureRequest,
    ) -> AsyncIterator[Any]:
        if kind == "memory":
            yield through_faults(InMemoryStore(clock), request, rate)
            return
        async with sqlite_files.opened(clock) as store:
            yield through_faults(store, request, rate)


IN_MEMORY = (
    pytest.param("memory", 0.01, id="memory-1%"),
    pytest.param("memory", 0.10, id="memory-10%"),
)
IN_SQLITE = (
    pytest.param("sqlite", 0.01, id="sqlite-1%"),
    pytest.param("sqlite", 0.10, id="sqlite-10%"),
)


@pytest.mark.parametrize(("kind", "rate"), IN_MEMORY + IN_SQLITE)
class ThroughFaults(EitherThroughFaults): ...


class TestRuns(ThroughFaults, RunStateStoreContract): ...


class TestBatches(ThroughFaults, BatchUpdatesContract): ...


class TestLeases(ThroughFaults, LeaseStoreContract): ...


@pytest.mark.parametrize(("kind", "rate"), IN_SQLITE)
class TestKeptApart(EitherThroughFaults, KeptApartContract): ...


class TestEvents(ThroughFaults, EventLogContract): ...


class TestOwnershipEvents(ThroughFaults, OwnershipEventsContract): ...


class TestDefinitions(ThroughFaults, DefinitionsContract): ...


class TestOutbox(ThroughFaults, OutboxContract): ...


class TestOutboxBatches(ThroughFaults, OutboxBatchesContract): ...


class TestLogs(ThroughFaults, LogStoreContract): ...


class TestWorkers(ThroughFaults, WorkerRegistryContract): ...


class TestTokens(ThroughFaults, TokenStoreContract): ...


class TestLogListing(ThroughFaults, LogListingContract): ...


class TestRetention(ThroughFaults, RetentionContract): ...


class TestRetentionOfCallbacks(ThroughFaults, OutboxRetentionContract): ...


class TestRetentionOfOutput(ThroughFaults, OutputRetentionContract): ...


class PostgresThroughFaults(ManualTime):
    """``pooled``: a pooler stands between the store and its server. Else statements are prepared by
    name."""

    @pytest.fixture
    def clock(self, postgres_database: TestDatabase) -> ManualClock:
        self._manual = ServersClock(postgres_database)
        return self._manual

    @pytest.fixture
    async def store(
        self,
        rate: float,
        pooled: bool,
        clock: ManualClock,
        postgres_database: TestDatabase,
        postgres_pooler: Pooler,
        request: pytest.FixtureRequest,
    ) -> AsyncIterator[Any]:
        pooled_url = postgres_database.url_through(postgres_pooler.port)
        url = pooled_url if pooled else f"{postgres_database.url}?prepared=yes"
        async with warm_store(url, clock) as store:
            yield through_faults(store, request, rate)

    @pytest.fixture
    async def reopened(
        self, store: Any, clock: ManualClock, postgres_database: TestDatabase
    ) -> AsyncIterator[Any]:
        """Another process, which has a better day."""
        async with warm_store(postgres_database.url, clock) as second:
            yield second


either_way = pytest.mark.parametrize(
    ("rate", "pooled"), [(0.01, True), (0.10, False)], ids=["1%-pooled", "10%-prepared"]
)
the_other_way_round = pytest.mark.parametrize(
    ("rate", "pooled"), [(0.01, False), (0.10, True)], ids=["1%-prepared", "10%-pooled"]
)
on_a_bad_day = pytest.mark.parametrize(("rate", "pooled"), [(0.10, False)], ids=["10%-prepared"])
"""For what is mostly asked, and what no pooler passes on."""


@either_way
class TestPostgresRuns(PostgresThroughFaults, RunStateStoreContract): ...


@the_other_way_round
class TestPostgresRunsOtherwise(
    PostgresThroughFaults, RunUpdates, OperatorUpdates, RunApproval, RunEndings
):
    """What is written to runs. That each value and each filter is a case of its own says nothing
    more about faults."""


@either_way
class TestPostgresBatches(PostgresThroughFaults, BatchUpdatesContract): ...


@the_other_way_round
class TestPostgresBatchesOtherwise(PostgresThroughFaults, BatchUpdatesContract): ...


@either_way
class TestPostgresLeases(PostgresThroughFaults, LeaseStoreContract): ...


@the_other_way_round
class TestPostgresLeasesOtherwise(
    PostgresThroughFaults, Claims, ClaimsInBatches, Renewals, Takeovers, Reconciling
): ...


@either_way
class TestPostgresKeptApart(PostgresThroughFaults, KeptApartContract): ...


@either_way
class TestPostgresBeginnings(PostgresThroughFaults, BeginningsContract): ...


@the_other_way_round
class TestPostgresBeginningsOtherwise(PostgresThroughFaults, BeginningsContract): ...


@either_way
class TestPostgresEvents(PostgresThroughFaults, EventLogContract): ...


@either_way
class TestPostgresOwnershipEvents(PostgresThroughFaults, OwnershipEventsContract): ...


@either_way
class TestPostgresChangeFeed(PostgresThroughFaults, ChangeFeedContract): ...


@either_way
class TestPostgresDefinitions(PostgresThroughFaults, DefinitionsContract): ...


@either_way
class TestPostgresOutbox(PostgresThroughFaults, OutboxContract): ...


@either_way
class TestPostgresOutboxBatches(PostgresThroughFaults, OutboxBatchesContract): ...


@either_way
class TestPostgresLogs(PostgresThroughFaults, LogStoreContract): ...


@either_way
class TestPostgresWorkers(PostgresThroughFaults, WorkerRegistryContract): ...


@either_way
class TestPostgresLogListing(PostgresThroughFaults, LogListingContract): ...


@either_way
class TestPostgresRetention(PostgresThroughFaults, RetentionContract): ...


@either_way
class TestPostgresRetentionOfCallbacks(PostgresThroughFaults, OutboxRetentionContract): ...


@either_way
class TestPostgresRetentionOfOutput(PostgresThroughFaults, OutputRetentionContract): ...


@either_way
class TestPostgresTokens(PostgresThroughFaults, TokenStoreContract): ...


@either_way
class TestPostgresDurability(PostgresThroughFaults, DurabilityContract): ...


@either_way
class TestPostgresShared(PostgresThroughFaults, SharedStoreContract): ...


@either_way
class TestPostgresSharedLeases(PostgresThroughFaults, SharedLeasesContract): ...


@on_a_bad_day
class TestPostgresRetentionCounts(PostgresThroughFaults, RetentionCountsContract): ...


@on_a_bad_day
class TestPostgresLastRecords(PostgresThroughFaults, LastRecordsContract): ...


@on_a_bad_day
class TestPostgresVersions(PostgresThroughFaults, RunVersionsContract): ...


@on_a_bad_day
class TestPostgresLogSizes(PostgresThroughFaults, LogSizesContract): ...


@on_a_bad_day
class TestPostgresOwnerListing(PostgresThroughFaults, OwnerListingContract): ...


@on_a_bad_day
class TestPostgresCensus(PostgresThroughFaults, CensusContract): ...


@on_a_bad_day
class TestPostgresWakeups(PostgresThroughFaults, WakeupsContract): ...


@on_a_bad_day
class TestPostgresStoreClock(PostgresThroughFaults, StoreClockContract): ...


@on_a_bad_day
class TestPostgresUpkeep(PostgresThroughFaults, UpkeepContract): ...


class TestTheFaultsThemselves:
    """A suite that passes through a wrapper which does nothing has shown nothing."""

    def faulty(self, *faults: Fault, rate: float = 1.0, **rates: float) -> Any:
        return FaultyStore(
            InMemoryStore(ManualClock()), seed=1, rate=rate, rates=rates, faults=faults
        )

    async def test_before_applies_nothing(self) -> None:
        store = self.faulty(Fault.BEFORE, list_runs=0)
        with pytest.raises(StoreUnavailable):
            await store.create_run(new_run())
        assert not (await store.list_runs()).items

    async def test_lost_answer_applies_once_however_often_it_is_sent(self) -> None:
        store = self.faulty(Fault.LOST_ANSWER, list_runs=0)
        run = new_run()
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await store.create_run(run)
        assert [item.version for item in (await store.list_runs()).items] == [1]

    async def test_late_is_applied_after_it_was_reported_as_failed(self) -> None:
        store = self.faulty(Fault.LATE, list_runs=0)
        with pytest.raises(StoreUnavailable):
            await store.create_run(new_run())
        assert not (await store._store.list_runs()).items
        assert len((await store.list_runs()).items) == 1

    async def test_late_may_be_overtaken_by_its_own_repetition(self) -> None:
        in_order = set()
        for seed in range(20):
            real = Between(InMemoryStore(ManualClock()))
            store: Any = FaultyStore(real, seed=seed, rate=0.5, faults=(Fault.LATE,))
            run, sent = new_run(), []
            answered = None
            while answered is None:
                sent.append(copy(run))
                with suppress(StoreUnavailable):
                    answered = await store.create_run(sent[-1])
            arrived = [_place_of(call[0], sent) for _, call in real.calls]
            assert sorted(arrived) == list(range(len(sent)))
            assert answered.version == 1
            if len(sent) > 1:
                in_order.add(arrived == sorted(arrived))
        assert in_order == {True, False}

    async def test_delay_goes_through_the_given_pause(self) -> None:
        waited: list[float] = []

        async def pause(seconds: float) -> None:
            waited.append(seconds)

        store: Any = FaultyStore(
            InMemoryStore(ManualClock()), seed=1, rate=1.0, faults=(Fault.DELAY,), pause=pause
        )
        await store.create_run(new_run())
        assert waited

    async def test_rates_are_kept_and_counted_by_method(self) -> None:
        store = self.faulty(*Fault, rate=0.10, list_runs=0)
        client: Any = RetryingStore(store)
        for _ in range(300):
            await client.create_run(new_run())
            await client.list_runs()
        assert {method for method, _ in store.injected} == {"create_run"}
        assert {fault for _, fault in store.injected} == set(Fault)
        assert 0.05 < store.injected.total() / store.calls["create_run"] < 0.20
        assert client.resent

    async def test_same_seed_same_faults(self) -> None:
        async def faults() -> dict[tuple[str, Fault], int]:
            store = self.faulty(*Fault, rate=0.5)
            client: Any = RetryingStore(store)
            for _ in range(30):
                await client.create_run(new_run())
            return dict(store.injected)

        assert await faults() == await faults()

    async def test_client_gives_up_in_the_end(self) -> None:
        client: Any = RetryingStore(self.faulty(Fault.BEFORE), attempts=3)
        with pytest.raises(StoreUnavailable):
            await client.list_runs()
        assert client.resent == 2

    def test_wrappers_offer_what_the_store_offers(self, tmp_path: Path) -> None:
        for store, has_leases in ((InMemoryStore(), True), (FileStore(tmp_path), False)):
            wrapped = RetryingStore(FaultyStore(store, seed=1, rate=0.1))
            assert isinstance(wrapped, RunStateStore)
            assert isinstance(wrapped, LeaseStore) == has_leases
            assert isinstance(wrapped, Outbox) == has_leases
            assert wrapped.durable == store.durable

    def test_rate_of_an_unknown_method_is_a_mistake(self) -> None:
        assert "claim_run" in METHODS
        with pytest.raises(ValueError, match="claim_rnu"):
            self.faulty(claim_rnu=1.0)


def _place_of(value: object, among: Sequence[object]) -> int:
    """By identity: the repetitions of a call are equal."""
    (place,) = (place for place, each in enumerate(among) if each is value)
    return place
