"""The faults of ``tenure.testing.faults``, and that a sweep of them finds stores which forget."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.model.errors import StoreUnavailable
from tenure.model.update import Receipt, Update
from tenure.ports.callbacks import Outbox
from tenure.ports.leases import LeaseStore
from tenure.ports.store import RunStateStore
from tenure.stores.file import FileStore
from tenure.stores.memory import InMemoryStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts import FaultSweep, RunStateStoreContract
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
        assert others == {"sizes_of", "store_time", "take_census", "versions_of"}


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
