"""Behind faults a store has the powers it had, and none of them is a way around the faults."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from inspect import getattr_static, isclass, iscoroutinefunction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tenure import ports
from tenure.client.store import HttpStore
from tenure.model.errors import StoreUnavailable
from tenure.ports.leases import LeaseKeeping
from tenure.stores.file import FileStore
from tenure.stores.memory import InMemoryStore
from tenure.stores.postgres import PostgresStore
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.factories import new_run
from tenure.testing.faults import Fault, FaultyStore, RetryingStore

WITHOUT_FAULTS = {
    "attended_by",
    "batches_at_once",
    "durable",
    "listen",
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
