"""The kit itself: its faults happen, hide no power of a store, and its lives fill every field."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from copy import copy
from inspect import getattr_static, isclass, iscoroutinefunction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields, replace

from tenure import ports
from tenure.client.store import HttpStore
from tenure.model.errors import StoreUnavailable
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import Receipt, Update
from tenure.ports.callbacks import Outbox
from tenure.ports.leases import LeaseKeeping, LeaseStore
from tenure.ports.store import RunStateStore
from tenure.stores.file import FileStore
from tenure.stores.memory import InMemoryStore
from tenure.stores.postgres import PostgresStore
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts import FaultSweep, ManualTime, RunStateStoreContract
from tenure.testing.contracts.run_records import LIVES, OWNED_LIVES, FollowedOwnership, FollowedRun
from tenure.testing.factories import new_run, unique
from tenure.testing.faults import (
    METHODS,
    SWEPT,
    WRITES,
    Fault,
    FaultAt,
    FaultyStore,
    OneFaultStore,
    RetryingStore,
)
from tests.runtime.puppets import Between

# The faults of ``tenure.testing.faults``, and that a sweep of them finds stores which forget.


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


class TestOneFault:
    def store(self, number: int, fault: Fault) -> tuple[Any, FaultAt]:
        at = FaultAt(number, fault)
        return OneFaultStore(InMemoryStore(ManualClock()), at), at

    @pytest.mark.parametrize("fault", SWEPT)
    async def test_only_that_writing_call_fails(self, fault: Fault) -> None:
        store, at = self.store(2, fault)
        await store.create_run(new_run())
        await store.list_runs()
        second = new_run()
        with pytest.raises(StoreUnavailable, match=f"injected into create_run: {fault}"):
            await store.create_run(second)
        applied = len((await store.list_runs()).items) == 2
        assert applied == (fault is Fault.LOST_ANSWER)
        assert (await store.create_run(second)).version == 1
        await store.create_run(new_run())
        assert at.met
        assert at.calls == ["create_run"] * 4
        assert str(at) == f"writing call 2 (create_run): {fault}"

    async def test_late_call_arrives_after_its_own_repetition(self) -> None:
        at = FaultAt(1, Fault.LATE)
        real = Between(InMemoryStore(ManualClock()))
        store: Any = OneFaultStore(real, at)
        run = new_run()
        again = copy(run)
        with pytest.raises(StoreUnavailable):
            await store.create_run(run)
        met = [at.met]
        await store.create_run(again)
        assert [*met, at.met] == [False, True]
        first, second = (call[0] for _, call in real.calls)
        assert (first is again, second is run) == (True, True)

    def test_every_other_call_only_reads(self) -> None:
        assert WRITES < METHODS
        reading = ("check_", "find_", "get_", "hears_", "is_", "list_", "mark_", "newest_", "read")
        others = {name for name in METHODS - WRITES if not name.startswith(reading)}
        assert others == {
            "lease_tokens",
            "sizes_of",
            "store_time",
            "take_census",
            "token_secret",
            "versions_of",
        }


class ForgetsUpdates(InMemoryStore):
    """Keeps another ``update_id`` than it was given."""

    async def update_run(self, update: Update) -> Receipt:
        return await super().update_run(replace(update, update_id=unique("forgotten")))


class TestSweep:
    def sweep(self, store: type[InMemoryStore], clause: str) -> Any:
        """The clause as pytest would run it."""

        class Swept(FaultSweep, RunStateStoreContract): ...

        return getattr(Swept(), clause)(open_store=lambda: nullcontext(store(ManualClock())))

    @pytest.mark.parametrize(
        "clause", ["test_update_by_run_id", "test_accepted_update_raises_version_by_one"]
    )
    async def test_store_that_forgets_an_update_is_found(self, clause: str) -> None:
        await self.sweep(InMemoryStore, clause)
        with pytest.raises(Exception) as found:  # noqa: PT011 - whichever way the clause breaks
            await self.sweep(ForgetsUpdates, clause)
        (note,) = found.value.__notes__
        assert note == f"clause {clause}, writing call 2 (update_run): lost answer"

    async def test_values_of_a_failed_clause_are_named(self) -> None:
        with pytest.raises(Exception) as found:  # noqa: PT011
            await self.sweep(ForgetsUpdates, "test_running_host_may_become")
        (note,) = found.value.__notes__
        assert note.startswith("clause test_running_host_may_become, later=")

    async def test_each_writing_call_meets_each_fault(self) -> None:
        met = []

        class Noted(FaultSweep, RunStateStoreContract):
            def open_with(self, open_store: Any, at: FaultAt) -> Any:
                met.append((at.number, at.fault))
                return super().open_with(open_store, at)

        await Noted().test_update_by_run_id(  # type: ignore[call-arg]
            open_store=lambda: nullcontext(InMemoryStore(ManualClock()))
        )
        assert met == [(0, None), *((number, fault) for number in (1, 2, 3) for fault in SWEPT)]

    async def test_fault_that_is_not_met_is_a_failure(self) -> None:
        class Past(FaultSweep, RunStateStoreContract):
            def open_with(self, open_store: Any, at: FaultAt) -> Any:
                at.number += 100
                return super().open_with(open_store, at)

        with pytest.raises(pytest.fail.Exception, match="without meeting its fault"):
            await Past().test_update_by_run_id(  # type: ignore[call-arg]
                open_store=lambda: nullcontext(InMemoryStore(ManualClock()))
            )


def _place_of(value: object, among: Sequence[object]) -> int:
    """By identity: the repetitions of a call are equal."""
    (place,) = (place for place, each in enumerate(among) if each is value)
    return place


# Behind faults a store has the powers it had, and none of them is a way around the faults.


WITHOUT_FAULTS = {
    "attended_by",
    "batches_at_once",
    "durable",
    "last_record",
    "listen",
    "offered_run",
}
"""Nobody is asked for these, or nothing is promised of them."""


@pytest.fixture(params=["memory", "file", "sqlite", "postgres", "http"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """Of each kind; none of them is asked anything, so no server is needed."""
    opened: dict[str, Any] = {
        "memory": InMemoryStore,
        "file": lambda: FileStore(tmp_path),
        "sqlite": lambda: SQLiteStore(tmp_path / "runs.db"),
        "postgres": lambda: PostgresStore("postgresql://nobody@127.0.0.1:1/none"),
        "http": lambda: HttpStore("http://127.0.0.1:1"),
    }
    store = opened[request.param]()
    yield store
    if hasattr(store, "close"):
        await store.close()


def protocols() -> Iterator[type]:
    """Every port that ``isinstance`` can be asked about, whoever is behind it."""
    for module in pkgutil.iter_modules(ports.__path__, "tenure.ports."):
        for value in vars(importlib.import_module(module.name)).values():
            if isclass(value) and getattr(value, "_is_runtime_protocol", False):
                yield value


def members(store: Any) -> dict[str, Any]:
    """Of all protocols that the store has, by name, as the protocols have them."""
    return {
        name: getattr(protocol, name, None)
        for protocol in protocols()
        if isinstance(store, protocol)
        for name in (*vars(protocol), *vars(protocol).get("__annotations__", ()))
        if not name.startswith("_")
    }


def test_the_wrappers_have_its_protocols(store: Any) -> None:
    wrapped = RetryingStore(FaultyStore(store, seed=1, rate=0.1))
    for protocol in protocols():
        assert isinstance(wrapped, protocol) == isinstance(store, protocol), protocol
    for name in members(store):
        getattr_static(wrapped, name)  # as ``isinstance`` looks since Python 3.12


async def test_every_call_meets_faults(store: Any) -> None:
    faulty = FaultyStore(store, seed=1, rate=1.0, faults=(Fault.BEFORE,))
    calls = {name for name, member in members(store).items() if iscoroutinefunction(member)}
    assert "create_run" in calls
    for name in calls:
        with pytest.raises(StoreUnavailable, match=f"injected into {name}"):
            await getattr(faulty, name)()
    assert faulty.injected.keys() == {(name, Fault.BEFORE) for name in calls}


def test_no_other_power_leads_past_them(store: Any) -> None:
    faulty = FaultyStore(store, seed=1, rate=1.0)
    same = {name for name in members(store) if getattr(faulty, name) == getattr(store, name)}
    assert same <= WITHOUT_FAULTS


async def fails(store: Any) -> bool:
    try:
        await store.list_runs()
    except StoreUnavailable:
        return True
    return False


class TestLinesKeptApart:
    @pytest.fixture
    async def real(self, tmp_path: Path) -> AsyncIterator[SQLiteStore]:
        async with await SQLiteStore.open(tmp_path / "runs.db") as store:
            yield store

    async def test_their_calls_meet_its_faults_and_are_counted_there(
        self, real: SQLiteStore
    ) -> None:
        faulty: Any = FaultyStore(real, seed=1, rate=1.0, faults=(Fault.BEFORE,))
        async with faulty.keeping() as line:
            for _ in range(20):
                with pytest.raises(StoreUnavailable, match="injected into renew_leases"):
                    await line.renew_leases([], 60)
        assert faulty.calls == {"renew_leases": 20}
        assert faulty.injected == {("renew_leases", Fault.BEFORE): 20}

    async def test_their_delays_go_through_the_given_pause(self, real: SQLiteStore) -> None:
        waited: list[float] = []

        async def pause(seconds: float) -> None:
            waited.append(seconds)

        faulty: Any = FaultyStore(
            real, seed=1, rate=1.0, faults=(Fault.DELAY,), pause=pause, longest_pause=60
        )
        async with faulty.keeping() as line:
            await line.list_runs()
            await line.list_runs()
        assert len(waited) == 2
        assert max(waited) > 0.001

    async def test_the_client_sends_them_again(self, real: SQLiteStore) -> None:
        faulty = FaultyStore(real, seed=1, rate=0.5)
        client: Any = RetryingStore(faulty)
        async with client.keeping() as line:
            for _ in range(30):
                assert await line.renew_leases([], 60) == []
        assert faulty.injected.total()
        assert faulty.calls["renew_leases"] > 30

    async def test_what_is_late_stays_with_its_line(self, real: SQLiteStore) -> None:
        """Its connection is of another event loop."""
        faulty: Any = FaultyStore(
            real, seed=1, rate=1.0, rates={"list_runs": 0}, faults=(Fault.LATE,)
        )
        async with faulty.keeping() as line:
            with pytest.raises(StoreUnavailable):
                await faulty.create_run(new_run())
            assert not (await line.list_runs()).items
            assert len((await faulty.list_runs()).items) == 1

    async def test_what_one_meets_depends_on_no_other(self, real: SQLiteStore) -> None:
        """They are asked from different threads, in an order that nobody knows."""

        async def alone() -> tuple[list[bool], list[bool]]:
            faulty = FaultyStore(real, seed=7, rate=0.5, faults=(Fault.BEFORE,))
            met = [await fails(faulty) for _ in range(30)]
            async with faulty.keeping() as line:
                return met, [await fails(line) for _ in range(30)]

        async def by_turns() -> tuple[list[bool], list[bool]]:
            faulty = FaultyStore(real, seed=7, rate=0.5, faults=(Fault.BEFORE,))
            async with faulty.keeping() as line:
                both = [(await fails(faulty), await fails(line)) for _ in range(30)]
            return [met for met, _ in both], [met for _, met in both]

        met, met_apart = await alone()
        assert met != met_apart
        assert await by_turns() == (met, met_apart)

    async def test_a_line_that_can_do_no_more_than_keep_leases(self) -> None:
        class Narrow(InMemoryStore):
            @asynccontextmanager
            async def keeping(self) -> AsyncIterator[LeaseKeeping]:
                yield SimpleNamespace(renew_leases=self.renew_leases, list_runs=self.list_runs)

        client: Any = RetryingStore(FaultyStore(Narrow(), seed=1, rate=0.1))
        async with client.keeping() as line:
            assert isinstance(line, LeaseKeeping)
            assert not hasattr(line, "create_run")
            assert await line.renew_leases([], 60) == []


# The lives that the contracts let runs lead fill every field of a record, down to each host: a new
# field that nobody puts something into would be one that a store may forget.


MADE_BY_CLAIMS = {"RunSnapshot.takeovers", "RunSnapshot.takeovers_without_progress"}


class Timed(ManualTime):
    def __init__(self) -> None:
        self._manual = ManualClock()
        self.store = InMemoryStore(self._manual)


async def test_lives_without_claims_fill_all_that_claims_do_not() -> None:
    seen: list[RunSnapshot] = []
    for life in LIVES.values():
        run = FollowedRun(InMemoryStore())
        await life(run)
        seen += run.seen
    assert _never_filled(seen) == MADE_BY_CLAIMS


async def test_lives_with_claims_fill_the_rest() -> None:
    seen: list[RunSnapshot] = []
    for life in OWNED_LIVES.values():
        timed = Timed()
        run = FollowedOwnership(timed.store, timed)
        await life(run)
        seen += run.seen
    assert not _never_filled(seen) & MADE_BY_CLAIMS


def _never_filled(seen: Iterable[RunSnapshot]) -> set[str]:
    """Fields at their default in all values of their kind. Of a kind that is not there at all, the
    field that would hold it is."""
    every: set[str] = set()
    filled: set[str] = set()
    for value in _structs(seen):
        kind = type(value).__name__
        for field in fields(value):
            every.add(f"{kind}.{field.name}")
            if getattr(value, field.name) != _default(field):
                filled.add(f"{kind}.{field.name}")
    return every - filled


def _structs(value: Any) -> Iterator[Struct]:
    """All of them in a tree."""
    inside: Iterable[Any] = ()
    if isinstance(value, Struct):
        yield value
        inside = (getattr(value, name) for name in value.__struct_fields__)
    elif isinstance(value, dict):
        inside = value.values()
    elif isinstance(value, list | tuple):
        inside = value
    for each in inside:
        yield from _structs(each)


def _default(field: FieldInfo) -> Any:
    """Of one that must be given: what no value equals."""
    if field.default_factory is not NODEFAULT:
        return field.default_factory()
    return field.default
