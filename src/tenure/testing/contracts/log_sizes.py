"""``LogSizes``: how much output there is, of many tasks at once."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.ports.store import LogName, LogSizes
from tenure.testing.contracts.acts import UNKNOWN_RUN_IDS, claim, create
from tenure.testing.contracts.harness import ContractHarness, MeasuringStore
from tenure.testing.contracts.log_listing import HARD_NAMES, IN_ORDER, OUT
from tenure.testing.factories import fencing_of


class LogSizesContract(ContractHarness):
    async def test_store_measures_output(self, store: MeasuringStore) -> None:
        assert isinstance(store, LogSizes)

    async def test_sizes_grow_with_what_is_printed(self, store: MeasuringStore) -> None:
        run = await claim(store, (await create(store)).run_id)
        name = (run.run_id, OUT)
        assert await store.sizes_of([name]) == {name: 0}
        for data in (b"one", b"and two"):
            (size,) = (await store.sizes_of([name])).values()
            await store.append(run.run_id, fencing_of(run), OUT, size, data)
        assert await store.sizes_of([name]) == {name: len(b"oneand two")}

    async def test_every_stream_has_its_own(self, store: MeasuringStore) -> None:
        runs = [await claim(store, (await create(store)).run_id) for _ in range(2)]
        wanted: dict[LogName, int] = {}
        for run in runs:
            for key in (*IN_ORDER, *(replace(OUT, host=name) for name in HARD_NAMES)):
                data = b"x" * (len(wanted) + 1)
                await store.append(run.run_id, fencing_of(run), key, 0, data)
                wanted[run.run_id, key] = len(data)
        assert await store.sizes_of(wanted) == wanted
        some = dict(list(wanted.items())[::3])
        assert await store.sizes_of(some) == some

    async def test_runs_that_are_not_there_are_missing(self, store: MeasuringStore) -> None:
        run = await create(store)
        asked = [(run_id, OUT) for run_id in (*UNKNOWN_RUN_IDS, run.run_id)]
        assert await store.sizes_of(asked) == {(run.run_id, OUT): 0}
        assert await store.sizes_of([]) == {}
