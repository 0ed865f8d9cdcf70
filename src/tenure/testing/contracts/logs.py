"""``LogStore``: full output, appended by the owner alone."""

from __future__ import annotations

from contextlib import suppress

import pytest
from msgspec.structs import replace

from tenure.model.errors import LeaseLost, RunNotFound, StoreRejected
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.ports.store import LogKey, LogListing, LogName, LogSizes, LogStore
from tenure.testing.contracts.acts import UNKNOWN_RUN_IDS, at_once, claim, create, refused, write
from tenure.testing.contracts.harness import (
    ContractHarness,
    ListingStore,
    LoggingStore,
    MeasuringStore,
)
from tenure.testing.factories import LONG, end_run, fencing_of, unique

OUT = LogKey(step=0, host="web1", stream="stdout")


async def _owned(store: LoggingStore, *, seconds: float = LONG) -> RunSnapshot:
    return await claim(store, (await create(store)).run_id, "worker-1", seconds=seconds)


class LogStoreContract(ContractHarness):
    """``LogStore``: complete output, appended by the owner only."""

    async def test_store_is_a_log_store(self, store: LoggingStore) -> None:
        assert isinstance(store, LogStore)

    async def test_output_is_appended_and_read_by_offset(self, store: LoggingStore) -> None:
        run = await _owned(store)
        assert await store.append(run.run_id, fencing_of(run), OUT, 0, b"hello ") == 6
        assert await store.append(run.run_id, fencing_of(run), OUT, 6, b"world") == 11
        whole = await store.read(run.run_id, OUT)
        assert (whole.offset, whole.data, whole.size) == (0, b"hello world", 11)
        part = await store.read(run.run_id, OUT, 3, limit=4)
        assert (part.offset, part.data, part.size) == (3, b"lo w", 11)
        end = await store.read(run.run_id, OUT, 11)
        assert (end.data, end.size) == (b"", 11)

    async def test_following_by_small_reads_gives_every_byte(self, store: LoggingStore) -> None:
        run = await _owned(store)
        chunks = [bytes([number]) * (number + 1) for number in range(20)]
        offset = 0
        for chunk in chunks:
            offset = await store.append(run.run_id, fencing_of(run), OUT, offset, chunk)
        read = b""
        while True:
            piece = await store.read(run.run_id, OUT, len(read), limit=7)
            assert len(piece.data) <= 7
            read += piece.data
            if len(read) == piece.size:
                break
        assert read == b"".join(chunks)

    async def test_raw_bytes_are_kept(self, store: LoggingStore) -> None:
        run = await _owned(store)
        raw = bytes(range(256)) * 300
        assert await store.append(run.run_id, fencing_of(run), OUT, 0, raw) == len(raw)
        assert (await store.read(run.run_id, OUT, limit=len(raw))).data == raw

    async def test_stream_nobody_wrote_is_empty(self, store: LoggingStore) -> None:
        run = await _owned(store)
        nothing = await store.read(run.run_id, OUT)
        assert (nothing.offset, nothing.data, nothing.size) == (0, b"", 0)

    async def test_streams_are_kept_apart(self, store: LoggingStore) -> None:
        run, other = await _owned(store), await _owned(store)
        keys = [
            OUT,
            replace(OUT, stream="stderr"),
            replace(OUT, host="web2"),
            replace(OUT, step=1),
            replace(OUT, item=0),
            replace(OUT, item=1),
            replace(OUT, attempt=2),
            replace(OUT, host="../wéb:1/€ %2e"),
        ]
        for number, key in enumerate(keys):
            await store.append(run.run_id, fencing_of(run), key, 0, b"stream %d" % number)
        for number, key in enumerate(keys):
            assert (await store.read(run.run_id, key)).data == b"stream %d" % number
            assert (await store.read(other.run_id, key)).size == 0

    async def test_append_sent_again_changes_nothing(self, store: LoggingStore) -> None:
        run = await _owned(store)
        right = fencing_of(run)
        await store.append(run.run_id, right, OUT, 0, b"first")
        assert await store.append(run.run_id, right, OUT, 0, b"first") == 5
        await store.append(run.run_id, right, OUT, 5, b" second")
        assert await store.append(run.run_id, right, OUT, 0, b"first") == 12
        assert await store.append(run.run_id, right, OUT, 5, b" second") == 12
        assert (await store.read(run.run_id, OUT)).data == b"first second"

    async def test_one_append_sent_many_times_at_once_is_written_once(
        self, store: LoggingStore
    ) -> None:
        run = await _owned(store)
        ends, errors = await at_once(
            store.append(run.run_id, fencing_of(run), OUT, 0, b"once") for _ in range(10)
        )
        assert not errors
        assert set(ends) == {4}
        assert (await store.read(run.run_id, OUT)).data == b"once"

    async def test_gap_and_contradiction_are_rejected(self, store: LoggingStore) -> None:
        run = await _owned(store)
        right = fencing_of(run)
        await store.append(run.run_id, right, OUT, 0, b"there")
        for offset, data in ((6, b"gap"), (0, b"other"), (4, b"EE"), (1000, b"far")):
            await refused(StoreRejected, store.append(run.run_id, right, OUT, offset, data))
        assert (await store.read(run.run_id, OUT)).data == b"there"

    @pytest.mark.parametrize("run_id", UNKNOWN_RUN_IDS, ids=ascii)
    async def test_unknown_run_has_no_output(self, store: LoggingStore, run_id: str) -> None:
        run = await _owned(store)
        await refused(RunNotFound, store.append(run_id, fencing_of(run), OUT, 0, b"x"))
        await refused(RunNotFound, store.read(run_id, OUT))

    async def test_only_the_owner_appends(self, store: LoggingStore) -> None:
        run = await _owned(store)
        right = fencing_of(run)
        for wrong in (replace(right, fence=right.fence + 1), replace(right, owner_id="worker-2")):
            await refused(LeaseLost, store.append(run.run_id, wrong, OUT, 0, b"x"))
        assert (await store.read(run.run_id, OUT)).size == 0

    async def test_frozen_worker_that_thaws_cannot_append(self, store: LoggingStore) -> None:
        """No append after the claim succeeds, not even a repetition."""
        run = await _owned(store, seconds=self.lease_seconds)
        await store.append(run.run_id, fencing_of(run), OUT, 0, b"before")
        await self.expire_leases()
        taken = await claim(store, run.run_id, "worker-2")
        for offset, data in ((0, b"before"), (6, b" after")):
            await refused(LeaseLost, store.append(run.run_id, fencing_of(run), OUT, offset, data))
        assert await store.append(run.run_id, fencing_of(taken), OUT, 6, b"!") == 7

    async def test_expired_lease_that_nobody_took_still_appends(self, store: LoggingStore) -> None:
        run = await _owned(store, seconds=self.lease_seconds)
        await self.expire_leases()
        assert await store.append(run.run_id, fencing_of(run), OUT, 0, b"kept") == 4

    async def test_nothing_is_appended_after_release_or_end(self, store: LoggingStore) -> None:
        released, ended = await _owned(store), await _owned(store)
        await store.release_lease(released.run_id, fencing_of(released), unique("release"))
        await store.update_run(end_run(ended, RunStatus.FAILED))
        for run in (released, ended):
            await refused(LeaseLost, store.append(run.run_id, fencing_of(run), OUT, 0, b"late"))

    async def test_output_outlives_the_run(self, store: LoggingStore) -> None:
        run = await _owned(store)
        await store.append(run.run_id, fencing_of(run), OUT, 0, b"kept")
        await write(store, end_run(run, RunStatus.FAILED))
        assert (await store.read(run.run_id, OUT)).data == b"kept"

    async def test_output_does_not_change_the_record(self, store: LoggingStore) -> None:
        run = await _owned(store)
        await store.append(run.run_id, fencing_of(run), OUT, 0, b"quiet")
        assert (await store.get_run(run.run_id)).version == run.version


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
    """``LogListing``: the streams with output."""

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
        await refused(RunNotFound, store.list_logs(run_id))


class LogSizesContract(ContractHarness):
    """``LogSizes``: the sizes of many streams at once."""

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
