"""``LogListing``: which output there is."""

from __future__ import annotations

from contextlib import suppress

import pytest
from msgspec.structs import replace

from tenure.model.errors import LeaseLost, RunNotFound, StoreRejected
from tenure.model.status import RunStatus
from tenure.ports.store import LogKey, LogListing
from tenure.testing.contracts.acts import UNKNOWN_RUN_IDS, at_once, claim, create, write
from tenure.testing.contracts.harness import ContractHarness, ListingStore
from tenure.testing.factories import end_run, fencing_of

OUT = LogKey(step=0, host="web1", stream="stdout")
IN_ORDER = [
    replace(OUT, stream="stderr"),
    OUT,
    replace(OUT, attempt=2),
    replace(OUT, attempt=10),
    replace(OUT, item=0),
    replace(OUT, item=0, attempt=2),
    replace(OUT, item=2),
    replace(OUT, item=10),
    replace(OUT, host="web2"),
    replace(OUT, step=2),
    replace(OUT, step=10),
]
HARD_NAMES = [
    "WEB1",
    "web1,item3",
    "web1-item3-1.stdout",
    "../../etc/passwd",
    "..",
    "",
    "a b\tc\n",
    "wéb € 部署",
    "nul-\0-in-it",
    "%2e%2E",
    "ü" * 200,
    "x" * 5000,
    "x" * 5001,
]


class LogListingContract(ContractHarness):
    async def test_store_lists_output(self, store: ListingStore) -> None:
        assert isinstance(store, LogListing)

    async def test_run_that_printed_nothing_has_no_output(self, store: ListingStore) -> None:
        assert await store.list_logs((await create(store)).run_id) == []

    async def test_streams_are_listed_in_order(self, store: ListingStore) -> None:
        run = await claim(store, (await create(store)).run_id)
        for key in reversed(IN_ORDER):
            await store.append(run.run_id, fencing_of(run), key, 0, b"x")
        assert await store.list_logs(run.run_id) == IN_ORDER

    async def test_any_name_comes_back_as_it_was_given(self, store: ListingStore) -> None:
        run = await claim(store, (await create(store)).run_id)
        keys = [replace(OUT, host=name) for name in HARD_NAMES]
        keys += [replace(OUT, stream=name) for name in HARD_NAMES]
        for key in keys:
            await store.append(run.run_id, fencing_of(run), key, 0, b"x")
        listed = await store.list_logs(run.run_id)
        assert len(listed) == len(keys)
        assert set(listed) == set(keys)

    async def test_stream_of_many_pieces_is_listed_once(self, store: ListingStore) -> None:
        run = await claim(store, (await create(store)).run_id)
        for offset in range(5):
            await store.append(run.run_id, fencing_of(run), OUT, offset, b"x")
        await store.append(run.run_id, fencing_of(run), OUT, 0, b"x")
        assert await store.list_logs(run.run_id) == [OUT]

    async def test_streams_begun_at_once_are_all_listed(self, store: ListingStore) -> None:
        run = await claim(store, (await create(store)).run_id)
        keys = [replace(OUT, host=f"host-{number:02}") for number in range(20)]
        _, errors = await at_once(
            store.append(run.run_id, fencing_of(run), key, 0, b"x") for key in keys
        )
        assert not errors
        assert await store.list_logs(run.run_id) == keys

    async def test_refused_output_is_not_listed(self, store: ListingStore) -> None:
        run = await claim(store, (await create(store)).run_id)
        right = fencing_of(run)
        for fencing, offset in ((replace(right, fence=right.fence + 1), 0), (right, 7)):
            with suppress(LeaseLost, StoreRejected):
                await store.append(run.run_id, fencing, OUT, offset, b"x")
        assert await store.list_logs(run.run_id) == []

    async def test_runs_are_kept_apart(self, store: ListingStore) -> None:
        other = await create(store)
        run = await claim(store, (await create(store)).run_id)
        await store.append(run.run_id, fencing_of(run), OUT, 0, b"x")
        assert await store.list_logs(other.run_id) == []

    async def test_output_of_every_owner_is_listed(self, store: ListingStore) -> None:
        run = await claim(
            store, (await create(store)).run_id, "worker-1", seconds=self.lease_seconds
        )
        await store.append(run.run_id, fencing_of(run), OUT, 0, b"x")
        await self.expire_leases()
        taken = await claim(store, run.run_id, "worker-2")
        again = replace(OUT, attempt=2)
        await store.append(run.run_id, fencing_of(taken), again, 0, b"x")
        assert await store.list_logs(run.run_id) == [OUT, again]

    async def test_list_outlives_the_run(self, store: ListingStore) -> None:
        run = await claim(store, (await create(store)).run_id)
        await store.append(run.run_id, fencing_of(run), OUT, 0, b"x")
        await write(store, end_run(run, RunStatus.FAILED))
        assert await store.list_logs(run.run_id) == [OUT]

    @pytest.mark.parametrize("run_id", UNKNOWN_RUN_IDS, ids=ascii)
    async def test_unknown_run_has_no_list(self, store: ListingStore, run_id: str) -> None:
        with pytest.raises(RunNotFound):
            await store.list_logs(run_id)
