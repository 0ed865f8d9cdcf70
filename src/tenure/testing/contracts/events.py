"""``EventLog``, ``RunVersions``, ``ChangeFeed`` and ``Wakeups``: histories and hints."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from copy import deepcopy

import pytest

from tenure.model.errors import InvalidCursor, InvalidTransition, RunNotFound
from tenure.model.query import topic_of_owner, topic_of_queue
from tenure.model.snapshot import Approval, ErrorInfo, RunSnapshot
from tenure.model.status import RunStatus, StepStatus
from tenure.model.update import Changes, Effect, Event, Fencing, Position, RecordedEvent, Update
from tenure.ports.leases import Wakeups
from tenure.ports.store import ChangeFeed, EventLog, RunVersions
from tenure.testing.contracts.acts import (
    UNKNOWN_RUN_IDS,
    claim,
    create,
    create_embedded,
    lease_of,
    refused,
    write,
)
from tenure.testing.contracts.harness import (
    ContractHarness,
    FeedingStore,
    JournalingLeasingStore,
    JournalingStore,
    VersionedStore,
    WakingStore,
)
from tenure.testing.factories import (
    LONG,
    annotate,
    approve,
    cancel,
    change_run,
    end_run,
    fencing_of,
    finish_step,
    operator_status,
    owner_update,
    start_step,
    unique,
)

# ``EventLog``: a run's history, whole and in order.


def _says(run: RunSnapshot, *events: str | Event) -> Update:
    """An owner's update that changes nothing and tells of ``events``."""
    said = tuple(Event(type=event) if isinstance(event, str) else event for event in events)
    return Update(
        run_id=run.run_id,
        update_id=unique("says"),
        base_version=run.version,
        lease=fencing_of(run),
        effect=Effect(events=said),
    )


class EventLogContract(ContractHarness):
    async def test_store_is_an_event_log(self, store: JournalingStore) -> None:
        assert isinstance(store, EventLog)

    async def test_history_of_a_run_in_order(self, store: JournalingStore) -> None:
        run = await create_embedded(store)
        run = await write(store, start_step(run, 0, ("web1",)))
        run = await write(store, finish_step(run, 0))
        run = await write(store, end_run(run))
        events = await store.read_events(run.run_id)
        assert [(event.version, event.seq, event.type) for event in events] == [
            (1, 0, "run.running"),
            (2, 0, "step.running"),
            (2, 1, "host.running"),
            (3, 0, "host.success"),
            (3, 1, "step.success"),
            (4, 0, "run.success"),
        ]
        assert {event.run_id for event in events} == {run.run_id}
        assert {event.fence for event in events} == {1}

    async def test_events_are_stamped_with_the_time_of_their_version(
        self, store: JournalingStore
    ) -> None:
        run = await create_embedded(store)
        times = {1: run.updated_at}
        for number in range(3):
            run = await write(store, _says(run, "test.first", "test.second"))
            times[number + 2] = run.updated_at
        for event in await store.read_events(run.run_id):
            assert event.at == times[event.version]

    async def test_every_field_of_an_event_survives(self, store: JournalingStore) -> None:
        run = await create_embedded(store)
        error = ErrorInfo(kind="exit", message="nö", exit_code=1, failed_hosts=("web1",))
        full = Event(
            type="host.failed",
            status="failed",
            step="drain",
            step_index=3,
            host="wéb",
            message="line\nline",
            error=error,
            data={"deep": [{"n": None}], "f": 1.5},
        )
        await store.update_run(_says(run, full))
        (event,) = await store.read_events(run.run_id, Position(1, 0))
        for name in Event.__struct_fields__:
            assert getattr(event, name) == getattr(full, name), name
        assert type(event) is RecordedEvent

    async def test_reading_on_from_any_place(self, store: JournalingStore) -> None:
        run = await create_embedded(store)
        for _ in range(3):
            run = await write(store, _says(run, "test.a", "test.b", "test.c"))
        history = await store.read_events(run.run_id)
        assert len(history) == 10
        for place, event in enumerate(history):
            assert await store.read_events(run.run_id, event.position) == history[place + 1 :]
        assert await store.read_events(run.run_id, Position(2, 99)) == history[4:]
        assert await store.read_events(run.run_id, Position(99, 0)) == []

    async def test_reading_in_small_pieces_gives_the_whole(self, store: JournalingStore) -> None:
        run = await create_embedded(store)
        for _ in range(3):
            run = await write(store, _says(run, "test.a", "test.b", "test.c"))
        read: list[RecordedEvent] = []
        while piece := await store.read_events(
            run.run_id, read[-1].position if read else Position(), limit=2
        ):
            assert len(piece) <= 2
            read += piece
        assert read == await store.read_events(run.run_id)

    async def test_update_without_events_leaves_no_gap_for_readers(
        self, store: JournalingStore
    ) -> None:
        run = await create_embedded(store)
        run = await write(store, change_run(run, message="quiet"))
        run = await write(store, _says(run, "test.loud"))
        events = await store.read_events(run.run_id, Position(1, 0))
        assert [(event.version, event.type) for event in events] == [(3, "test.loud")]

    async def test_journal_has_every_version_of_the_run(self, store: JournalingStore) -> None:
        run = await create_embedded(store)
        run = await write(store, _says(run, "test.event"))
        run = await write(store, cancel(run))
        run = await write(store, annotate(run, found=1))
        run = await write(store, end_run(run, RunStatus.CANCELED))
        run = await write(store, annotate(run, found=2))
        versions = [event.version for event in await store.read_events(run.run_id)]
        assert versions == list(range(1, run.version + 1)) == [1, 2, 3, 4, 5, 6]

    async def test_refused_repeated_and_empty_writes_leave_no_event(
        self, store: JournalingStore
    ) -> None:
        run = await create_embedded(store)
        ending = end_run(run, RunStatus.FAILED)
        await refused(InvalidTransition, store.update_run(change_run(run, status=RunStatus.QUEUED)))
        ended = await write(store, ending)
        before = await store.read_events(run.run_id)
        await store.update_run(ending)
        await store.update_run(end_run(run, RunStatus.FAILED))
        await store.update_run(cancel(run))
        with pytest.raises(InvalidTransition):
            await store.update_run(operator_status(ended, RunStatus.SUCCESS))
        assert await store.read_events(run.run_id) == before

    async def test_effect_that_was_chosen_is_the_one_journaled(
        self, store: JournalingStore
    ) -> None:
        """Cancel ends an unowned run; of an owned one it is a request."""
        owned, free = await create_embedded(store), await create(store)
        for run, expected in (
            (owned, ["cancel.requested"]),
            (free, ["run.canceled", "cancel.requested"]),
        ):
            await store.update_run(cancel(run))
            events = await store.read_events(run.run_id, Position(1, 0))
            assert [event.type for event in events] == expected

    async def test_operators_status_change_is_journaled_under_the_new_fence(
        self, store: JournalingStore
    ) -> None:
        run = await create(store)
        ended = await write(store, operator_status(run, RunStatus.FAILED))
        last = (await store.read_events(run.run_id))[-1]
        assert (last.type, last.fence) == ("run.failed", ended.fence)

    async def test_status_changes_are_never_merged_away(self, store: JournalingStore) -> None:
        run = await create_embedded(store)
        for index in (0, 1):
            run = await write(store, start_step(run, index, ()))
            run = await write(store, finish_step(run, index, StepStatus.FAILED))
        types = [event.type for event in await store.read_events(run.run_id)]
        assert types == ["run.running", *["step.running", "step.failed"] * 2]

    async def test_readable_version_has_all_its_events(self, store: JournalingStore) -> None:
        run = await create_embedded(store)
        types = ("test.a", "test.b", "test.c")

        async def keep_writing(run: RunSnapshot) -> None:
            for _ in range(20):
                run = await write(store, _says(run, *types))

        async def keep_reading() -> None:
            for _ in range(40):
                version = (await store.get_run(run.run_id)).version
                events = await store.read_events(run.run_id, Position(1, 0))
                upto = [event for event in events if event.version <= version]
                assert len(upto) == (version - 1) * len(types)

        await asyncio.gather(keep_writing(run), keep_reading())
        await keep_reading()

    @pytest.mark.parametrize("run_id", UNKNOWN_RUN_IDS, ids=ascii)
    async def test_unknown_run_has_no_history(self, store: JournalingStore, run_id: str) -> None:
        await refused(RunNotFound, store.read_events(run_id))

    async def test_returned_events_share_nothing_with_the_store(
        self, store: JournalingStore
    ) -> None:
        run = await write(store, annotate(await create(store), key="value"))
        before = deepcopy(await store.read_events(run.run_id))
        for event in await store.read_events(run.run_id):
            if event.data is not None:
                event.data.clear()
        assert await store.read_events(run.run_id) == before

    async def test_release_in_an_update_keeps_its_events(self, store: JournalingStore) -> None:
        run = await create_embedded(store)
        await store.update_run(owner_update(run, Changes(), release=True))
        after = await write(store, cancel(run))
        events = await store.read_events(run.run_id, Position(1, 0))
        assert {event.version for event in events} == {after.version}


class OwnershipEventsContract(ContractHarness):
    """For stores with an ``EventLog`` and leases: the journal records changes of ownership."""

    async def test_claims_takeovers_and_releases_are_in_the_journal(
        self, store: JournalingLeasingStore
    ) -> None:
        run = await create(store)
        await claim(store, run.run_id, "worker-1", seconds=self.lease_seconds)
        await self.expire_leases()
        taken = await claim(store, run.run_id, "worker-2")
        await store.release_lease(run.run_id, fencing_of(taken), unique("release"))
        again = await claim(store, run.run_id, "worker-3")
        ended = await write(store, end_run(again, RunStatus.FAILED))
        history = await store.read_events(run.run_id)
        assert [(event.version, event.type, event.fence) for event in history] == [
            (1, "run.queued", 0),
            (2, "lease.claimed", 1),
            (3, "lease.taken_over", 2),
            (4, "lease.released", 2),
            (5, "lease.claimed", 3),
            (6, "run.failed", 3),
        ]
        assert ended.version == 6
        owners = [event.data["owner_id"] for event in history if event.data]
        assert owners == ["worker-1", "worker-2", "worker-2", "worker-3"]
        assert history[2].data is not None
        assert history[2].data["from"] == "worker-1"

    async def test_renewals_leave_no_event(self, store: JournalingLeasingStore) -> None:
        claimed = await claim(store, (await create(store)).run_id, "worker-1", seconds=600)
        before = await store.read_events(claimed.run_id)
        await claim(store, claimed.run_id, "worker-1", seconds=1200)
        assert await store.read_events(claimed.run_id) == before
        assert (await store.get_run(claimed.run_id)).version == claimed.version

    async def test_fence_never_falls_along_the_journal(self, store: JournalingLeasingStore) -> None:
        run = await create(store)
        for number in range(5):
            held = await claim(store, run.run_id, f"worker-{number}")
            held = await write(store, _says(held, "test.event"))
            await store.release_lease(run.run_id, fencing_of(held), unique("release"))
        history = await store.read_events(run.run_id)
        fences = [event.fence for event in history]
        assert fences == sorted(fences)
        versions = [event.version for event in history]
        assert versions == list(range(1, (await store.get_run(run.run_id)).version + 1))


class RunVersionsContract(ContractHarness):
    async def test_store_has_versions(self, store: VersionedStore) -> None:
        assert isinstance(store, RunVersions)

    async def test_versions_are_told_of_many_at_once(self, store: VersionedStore) -> None:
        runs = [await create(store) for _ in range(3)]
        await write(store, annotate(runs[1], found="something"))
        asked = [run.run_id for run in (runs[0], *runs, *runs)]
        found = await store.versions_of([*UNKNOWN_RUN_IDS, *asked])
        assert found == {run.run_id: run.version + (run is runs[1]) for run in runs}
        assert await store.versions_of([]) == {}

    async def test_lease_that_is_renewed_leaves_the_version(self, store: VersionedStore) -> None:
        run = await claim(store, (await create(store)).run_id, seconds=self.lease_seconds)
        await store.renew_leases([lease_of(run)], LONG)
        assert await store.versions_of([run.run_id]) == {run.run_id: run.version}


Journals = dict[str, list[RecordedEvent]]

_TIMEOUT_S = 20.0
_WRITERS = 8
_WRITES = 12


class ChangeFeedContract(ContractHarness):
    async def test_store_has_a_change_feed(self, store: FeedingStore) -> None:
        assert isinstance(store, ChangeFeed)

    async def test_empty_store_has_no_changes(self, store: FeedingStore) -> None:
        assert (await store.read_changes()).events == ()

    async def test_feed_has_the_journals_of_all_runs(self, store: FeedingStore) -> None:
        runs = [await create_embedded(store, f"owner-{number}") for number in range(3)]
        for run in runs:
            await write(store, start_step(run))
        journals = await _journals(store, [run.run_id for run in runs])
        assert _by_run(await _read(store, journals)) == journals

    @pytest.mark.parametrize("limit", [1, 2, 1000])
    async def test_pages_follow_each_other_without_gap_or_overlap(
        self, store: FeedingStore, limit: int
    ) -> None:
        runs = [await create_embedded(store, f"owner-{number}") for number in range(5)]
        for run in runs:
            await write(store, start_step(run))
        journals = await _journals(store, [run.run_id for run in runs])
        feed = await _read(store, journals, limit=limit)
        assert _by_run(feed) == journals
        assert feed == await _read(store, journals)

    async def test_cursor_at_the_end_opens_what_comes_next(self, store: FeedingStore) -> None:
        before = await create(store)
        feed = Reader(store)
        await feed.until(await _journals(store, [before.run_id]))
        run = await create(store)
        await write(store, annotate(run, found="later"))
        journals = await _journals(store, [before.run_id, run.run_id])
        await feed.until(journals)
        assert _by_run(feed.events) == journals

    async def test_newest_cursor_misses_nothing_from_now_on(self, store: FeedingStore) -> None:
        await create(store)
        feed = Reader(store, after=await store.newest_change())
        run = await create(store)
        journals = await _journals(store, [run.run_id])
        await feed.until(journals)
        assert _by_run(feed.events)[run.run_id] == journals[run.run_id]

    async def test_version_without_events_does_not_end_the_feed(self, store: FeedingStore) -> None:
        run = await create_embedded(store)
        run = await write(store, _change_says(run.run_id, run.version, fencing_of(run)))
        await write(store, start_step(run))
        journals = await _journals(store, [run.run_id])
        assert _by_run(await _read(store, journals, limit=1)) == journals

    async def test_reader_among_writers_loses_nothing_and_sees_nothing_twice(
        self, store: FeedingStore
    ) -> None:
        feed = Reader(store, limit=7)
        writing = asyncio.gather(*(_history(store, i) for i in range(_WRITERS)))
        while not writing.done():
            await feed.read()
        journals = await _journals(store, await writing)
        await feed.until(journals)
        assert _by_run(feed.events) == journals

    @pytest.mark.parametrize("cursor", ["nonsense", "WyJydW5zIiwxXQ"])
    async def test_cursor_of_another_kind_is_refused(
        self, store: FeedingStore, cursor: str
    ) -> None:
        await refused(InvalidCursor, store.read_changes(cursor))


async def _history(store: FeedingStore, number: int) -> str:
    run = await create_embedded(store, f"owner-{number}")
    for _ in range(_WRITES):
        update = _change_says(run.run_id, run.version, fencing_of(run), Event(type="run.note"))
        run = await write(store, update)
    return run.run_id


def _change_says(run_id: str, version: int, lease: Fencing, *events: Event) -> Update:
    return Update(
        run_id=run_id,
        update_id=unique("update"),
        base_version=version,
        lease=lease,
        effect=Effect(events=events),
    )


class Reader:
    """Reads the feed from its cursor on."""

    def __init__(self, store: ChangeFeed, limit: int = 1000, after: str | None = None) -> None:
        self.events: list[RecordedEvent] = []
        self._store = store
        self._limit = limit
        self._cursor = after

    async def read(self) -> None:
        changes = await self._store.read_changes(self._cursor, limit=self._limit)
        self.events += changes.events
        self._cursor = changes.cursor
        await asyncio.sleep(0)

    async def until(self, journals: Journals) -> None:
        """Until these have been read: a feed may lag."""
        wanted = {(event.run_id, event.position) for each in journals.values() for event in each}
        async with asyncio.timeout(_TIMEOUT_S):
            while wanted - {(event.run_id, event.position) for event in self.events}:
                await self.read()


async def _read(store: ChangeFeed, journals: Journals, limit: int = 1000) -> list[RecordedEvent]:
    reader = Reader(store, limit)
    await reader.until(journals)
    return reader.events


async def _journals(store: FeedingStore, run_ids: Iterable[str]) -> Journals:
    return {run_id: await store.read_events(run_id) for run_id in run_ids}


def _by_run(feed: Iterable[RecordedEvent]) -> Journals:
    found: Journals = defaultdict(list)
    for event in feed:
        found[event.run_id].append(event)
    return found


class WakeupsContract(ContractHarness):
    """``Wakeups``: listeners are notified of possible work."""

    async def test_store_wakes(self, store: WakingStore) -> None:
        assert isinstance(store, Wakeups)

    async def test_new_run_is_told_to_who_waits_for_its_queue(self, store: WakingStore) -> None:
        async with listening(store, topic_of_queue("gpu")) as heard:
            await create(store, queue="gpu")
            await heard.wait()

    async def test_one_of_several_topics_is_enough(self, store: WakingStore) -> None:
        topics = (topic_of_queue("gpu"), topic_of_queue("default"))
        async with listening(store, *topics) as heard:
            await create(store)
            await heard.wait()

    async def test_released_run_is_told(self, store: WakingStore) -> None:
        run = await claim(store, (await create(store)).run_id)
        async with listening(store, topic_of_queue(run.queue)) as heard:
            await store.release_lease(run.run_id, fencing_of(run), unique("release"))
            await heard.wait()

    async def test_approved_run_is_told(self, store: WakingStore) -> None:
        run = await create(store, approval=Approval(required=True))
        async with listening(store, topic_of_queue(run.queue)) as heard:
            await write(store, approve(run))
            await heard.wait()

    async def test_cancel_request_is_told_to_the_owner(self, store: WakingStore) -> None:
        run = await create_embedded(store, "owner-a")
        async with listening(store, topic_of_owner("owner-a")) as heard:
            await write(store, cancel(run))
            await heard.wait()

    async def test_many_may_listen(self, store: WakingStore) -> None:
        topic = topic_of_queue("default")
        async with listening(store, topic) as first, listening(store, topic) as second:
            await create(store)
            await first.wait()
            await second.wait()

    async def test_who_stopped_listening_is_told_no_more(self, store: WakingStore) -> None:
        topic = topic_of_queue("default")
        async with listening(store, topic) as stays:
            async with listening(store, topic) as left:
                pass
            left.clear()
            stays.clear()
            await create(store)
            await stays.wait()
            assert not left.is_set()

    async def test_listening_may_begin_again(self, store: WakingStore) -> None:
        for _ in range(2):
            async with listening(store, topic_of_queue("default")) as heard:
                await create(store)
                await heard.wait()


@asynccontextmanager
async def listening(store: Wakeups, *topics: str) -> AsyncIterator[asyncio.Event]:
    """Set by the next hint; the store is listening when this is entered."""
    heard = asyncio.Event()
    async with store.listen(topics, heard.set), asyncio.timeout(_TIMEOUT_S):
        await heard.wait()
        heard.clear()
        yield heard
