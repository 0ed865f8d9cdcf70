"""Whole records, read alone and in lists; lists, pages and filters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol

import pytest
from msgspec.structs import replace

from tenure.model.compose import callback_failed
from tenure.model.decide import Circumstances, apply
from tenure.model.errors import InvalidCursor
from tenure.model.leases import ClaimedRun, claim, present, why_not_runnable
from tenure.model.leases import create as born
from tenure.model.query import Page, RunFilter
from tenure.model.snapshot import (
    Approval,
    CallbackTarget,
    ErrorInfo,
    HostState,
    RunSnapshot,
    RunSummary,
    StepState,
    summarize,
)
from tenure.model.status import HostStatus, Recovery, RunStatus, StepKind, StepStatus
from tenure.model.update import (
    CallbackFailure,
    Changes,
    HostChange,
    ItemChange,
    NewRun,
    Receipt,
    RunChange,
    StepChange,
    Update,
)
from tenure.ports.store import RunStateStore
from tenure.testing.contracts.acts import at_once, create, create_embedded, pages, refused, write
from tenure.testing.contracts.harness import ContractHarness, LeasingStore
from tenure.testing.contracts.run_states import ASKS, waiting
from tenure.testing.factories import (
    annotate,
    approve,
    cancel,
    change_run,
    claim_request,
    embedded_run,
    end_run,
    expire,
    finish_host,
    lease_request,
    new_run,
    operator_status,
    owner_update,
    planned_steps,
    start_step,
    unique,
)

# A run in a store is compared, field by field, with the model's after the same writes.


class Listing(Protocol):
    """``list_runs`` and similar calls."""

    async def __call__(
        self, where: RunFilter = ..., *, limit: int = ..., cursor: str | None = ...
    ) -> Page[RunSummary]: ...


class FollowedRun:
    """A run, with times from receipts and all else from the model."""

    def __init__(self, store: RunStateStore) -> None:
        self.seen: list[RunSnapshot] = []
        """Every state that was compared."""
        self._store = store
        self._expected = RunSnapshot(run_id="unborn", workflow_name="")
        self._lease_live = False

    async def begin(self, new: NewRun) -> RunSnapshot:
        """Under a long lease, or none."""
        return await self.look(await self._create(new))

    async def write(self, update: Update) -> RunSnapshot:
        receipt = await self._store.update_run(update)
        circumstances = Circumstances(lease_live=self._lease_live)
        self._expected = apply(
            self._expected, update, at=_moment(receipt), circumstances=circumstances
        ).snapshot
        self._lease_live = self._lease_live and self._expected.owner_id is not None
        return await self.look(receipt.lease_expires_at)

    async def look(self, lease_expires_at: datetime | None) -> RunSnapshot:
        """The end of its lease is up to the store; not every store has one."""
        read = await self._store.get_run(self._expected.run_id)
        self._compare(read, lease_expires_at)
        await _check_listed(self._store.list_runs, read)
        self.seen.append(read)
        return read

    def _compare(self, read: RunSnapshot, lease_expires_at: datetime | None) -> None:
        assert read == present(
            self._expected, lease_live=self._lease_live, expires_at=lease_expires_at
        )

    async def _create(self, new: NewRun) -> datetime | None:
        receipt = await self._store.create_run(new)
        self._expected = born(new, _moment(receipt))
        self._lease_live = new.lease is not None
        return receipt.lease_expires_at


class FollowedOwnership(FollowedRun):
    """A run that changes owners."""

    def __init__(self, store: LeasingStore, harness: ContractHarness) -> None:
        super().__init__(store)
        self._leasing = store
        self._harness = harness

    async def begin_and_lose_owner(self, new: NewRun) -> RunSnapshot:
        """Under a short lease, which has expired at the first read."""
        assert new.lease is not None
        brief = replace(new.lease, seconds=self._harness.lease_seconds)
        expires_at = await self._create(replace(new, lease=brief))
        await self._harness.expire_leases()
        self._lease_live = False
        return await self.look(expires_at)

    async def claim(self, owner_id: str) -> RunSnapshot:
        """Under a long lease."""
        run_id = self._expected.run_id
        return await self._taken(await self._leasing.claim_run(run_id, lease_request(owner_id)))

    async def claim_next(self, owner_id: str) -> RunSnapshot:
        """Under a long lease, by queue."""
        request = claim_request(owner_id, queues=(self._expected.queue,))
        (claimed,) = await self._leasing.claim_runs(request)
        return await self._taken(claimed)

    async def _taken(self, claimed: ClaimedRun) -> RunSnapshot:
        owner_id = claimed.lease.owner_id
        at = claimed.snapshot.updated_at
        assert at is not None
        self._expected = claim(self._expected, owner_id, at=at, lease_live=False).snapshot
        self._lease_live = True
        self._compare(claimed.snapshot, claimed.lease.expires_at)
        return await self.look(claimed.lease.expires_at)

    async def look(self, lease_expires_at: datetime | None) -> RunSnapshot:
        assert (lease_expires_at is None) == (self._expected.owner_id is None)
        read = await super().look(lease_expires_at)
        assert read.updated_at is not None
        if not self._lease_live and why_not_runnable(read, read.updated_at) is None:
            await _check_listed(self._leasing.list_runnable, read)
        return read


async def _check_listed(listing: Listing, read: RunSnapshot) -> None:
    """In every list: a store may read each in another way."""
    questions = [
        RunFilter(),
        RunFilter(statuses=frozenset({read.status})),
        RunFilter(workflow_name=read.workflow_name),
        RunFilter(queue=read.queue),
        RunFilter(labels=read.labels),
        RunFilter(created_from=read.created_at),
        RunFilter(owner_id=read.owner_id or "nobody"),
        RunFilter(held=True),
        RunFilter(canceling=True),
        RunFilter(unapproved=True),
    ]
    for where in questions:
        if where.matches(read):
            found = [each for each in (await listing(where)).items if each.run_id == read.run_id]
            assert found == [summarize(read)], where


def _moment(receipt: Receipt) -> datetime:
    assert receipt.updated_at is not None
    return receipt.updated_at


# Histories that together fill every field of a record; a test names a field that none fills.


Life = Callable[[FollowedRun], Awaitable[None]]

AT_BIRTH: dict[str, Any] = {
    "workflow_name": "backup",
    "workflow_version": "v1",
    "workflow_digest": "sha256:abc",
    "message": "made by hand",
    "recovery": Recovery.RESUME,
    "queue": "gpu",
    "priority": 7,
    "run_after": datetime(2001, 1, 1, 12, 30, 15, 123456, tzinfo=UTC),
    "timeout": 12.5,
    "labels": {"team": "web"},
    "vars": {"release": "1.4"},
    "callbacks": (
        CallbackTarget(
            name="hook",
            url="https://hooks.example/run",
            events=("run", "host"),
            secret_env="HOOK_SECRET",  # noqa: S106  (the variable's name)
            headers={"X-Team": "web"},
        ),
    ),
    "retry_of": "run-before-this",
}
"""Every field that a creation can set, except approval."""

ASKS_IN_TIME = Approval(required=True, expires_at=datetime(2040, 1, 1, tzinfo=UTC))

WHY = ErrorInfo(
    kind="exit",
    message="disk full",
    step="step 0",
    host="web1",
    exit_code=28,
    stderr_tail="no space left",
    failed_hosts=("web1",),
    failed_count=1,
)

RESULT: dict[str, Any] = {
    "message": "not enough room",
    "kind": "exit",
    "exit_code": 28,
    "attempts": 2,
    "changed": True,
    "stdout": "copying\n",
    "stderr": "no space left\n",
    "truncated": True,
    "vars": {"free": "0"},
    "withheld": ("TOKEN",),
}


async def refused_while_it_waited(life: FollowedRun) -> None:
    run = await life.begin(new_run(approval=ASKS_IN_TIME, **AT_BIRTH))
    run = await life.write(approve(run, by="alice", note="as agreed"))
    run = await life.write(annotate(run, ticket=4711))
    await life.write(cancel(run, reason="not tonight"))


async def full_of_incidents(life: FollowedRun, end: RunStatus) -> None:
    """Everything that may happen to a run whose owner drives it to ``end``."""
    run = await life.begin(embedded_run(steps=planned_steps(1), **AT_BIRTH))
    run = await life.write(start_step(run))
    run = await life.write(annotate(run, ticket=4711))
    run = await life.write(cancel(run, reason="wrong release"))
    failure = CallbackFailure(target="hook", event="run.running", error="503", attempts=8)
    run = await life.write(callback_failed(run.run_id, run.version, unique("dead"), failure))
    looping = HostChange(items={0: ItemChange(status=HostStatus.RUNNING)})
    run = await life.write(_on_step(run, hosts={"web1": looping}, message="the first of many"))
    item = ItemChange(status=HostStatus.FAILED, **RESULT)
    failed = HostChange(status=HostStatus.FAILED, items={0: item}, **RESULT)
    run = await life.write(_on_step(run, hosts={"web1": failed}))
    run = await life.write(finish_host(run, 0, "web2"))
    tolerated = Changes(
        run=RunChange(message="goes on", last_error=WHY, unconfirmed_hosts=("web9",)),
        steps={0: StepChange(status=StepStatus.FAILED)},
    )
    run = await life.write(owner_update(run, tolerated))
    run = await life.write(owner_update(run, Changes(steps={1: _HANDLER})))
    run = await life.write(finish_host(run, 1, "web1"))
    run = await life.write(_on_step(run, 1, status=StepStatus.SUCCESS))
    run = await life.write(owner_update(run, Changes(run=_ENDED[end]), release=True))
    await life.write(annotate(run, found="later"))


async def cut_short_by_its_owner(life: FollowedRun, end: RunStatus) -> None:
    """With one step running and another not reached."""
    run = await life.begin(embedded_run(**AT_BIRTH))
    run = await life.write(start_step(run, 0, ("web1",)))
    await life.write(owner_update(run, Changes(run=_ENDED[end]), release=True))


async def given_back(life: FollowedRun) -> None:
    """Released unfinished by its owner, then ended by an operator."""
    run = await life.begin(embedded_run(**AT_BIRTH))
    run = await life.write(start_step(run))
    run = await life.write(owner_update(run, Changes(), release=True))
    await life.write(operator_status(run, RunStatus.INTERRUPTED))


def _on_step(run: RunSnapshot, index: int = 0, **fields: Any) -> Update:
    return owner_update(run, Changes(steps={index: StepChange(**fields)}))


_HANDLER = StepChange(
    plan=StepState(
        index=1,
        name="reload",
        kind=StepKind.HANDLER,
        action="cmd.run",
        notified_by=0,
        hosts={"web1": HostState()},
    ),
    status=StepStatus.RUNNING,
    hosts={"web1": HostChange(status=HostStatus.RUNNING, attempts=1)},
)

_ENDED = {
    RunStatus.SUCCESS: RunChange(status=RunStatus.SUCCESS, message="done after all"),
    RunStatus.FAILED: RunChange(status=RunStatus.FAILED, error=WHY),
    RunStatus.CANCELED: RunChange(status=RunStatus.CANCELED, message="stopped"),
    RunStatus.INTERRUPTED: RunChange(
        status=RunStatus.INTERRUPTED, error=WHY, interrupted_reason="the machine went down"
    ),
}

LIVES: dict[str, Life] = {
    "refused while it waited": refused_while_it_waited,
    "given back": given_back,
    **{f"incidents, then {end}": partial(full_of_incidents, end=end) for end in _ENDED},
    **{
        f"cut short: {end}": partial(cut_short_by_its_owner, end=end)
        for end in _ENDED
        if end is not RunStatus.SUCCESS
    },
}


class WholeRecords(ContractHarness):
    """``get_run`` and lists return every field of a record."""

    @pytest.mark.parametrize("life", LIVES.values(), ids=LIVES)
    async def test_record_and_summary_are_whole_all_along(
        self, store: RunStateStore, life: Life
    ) -> None:
        """At every version all fields equal those of the model; a summary is the same without
        steps, variables and callbacks."""
        await life(FollowedRun(store))


OwnedLife = Callable[[FollowedOwnership], Awaitable[None]]


async def taken_over(life: FollowedOwnership) -> None:
    """Taken over, released and claimed again, several times."""
    run = await life.begin_and_lose_owner(embedded_run("owner-a", **AT_BIRTH))
    run = await life.claim("owner-b")
    run = await _leave_in_trouble(life, run)
    run = await life.claim_next("owner-c")
    run = await life.write(owner_update(run, Changes(), release=True))
    run = await life.claim("owner-d")
    run = await life.write(finish_host(run, 0, "web1"))
    await life.write(end_run(run, RunStatus.CANCELED))


async def _leave_in_trouble(life: FollowedOwnership, run: RunSnapshot) -> RunSnapshot:
    run = await life.write(start_step(run))
    run = await life.write(annotate(run, ticket=4711))
    run = await life.write(cancel(run, reason="wrong release"))
    failure = CallbackFailure(target="hook", event="run.running", error="503", attempts=8)
    run = await life.write(callback_failed(run.run_id, run.version, unique("dead"), failure))
    said = RunChange(
        error=WHY,
        last_error=WHY,
        interrupted_reason="the machine goes down",
        unconfirmed_hosts=("web9",),
    )
    return await life.write(owner_update(run, Changes(run=said), release=True))


async def forsaken(life: FollowedOwnership) -> None:
    """Its owner is lost, writes once more, and an operator cancels it."""
    run = await life.begin_and_lose_owner(embedded_run(**AT_BIRTH))
    run = await life.write(annotate(run, ticket=4711))
    run = await life.write(start_step(run))
    await life.write(cancel(run))


async def claimed_after_approval(life: FollowedOwnership) -> None:
    run = await life.begin(new_run(approval=ASKS_IN_TIME, **AT_BIRTH))
    run = await life.write(approve(run, by="alice", note="as agreed"))
    run = await life.claim_next("owner-a")
    run = await life.write(owner_update(run, Changes(), release=True))
    run = await life.claim("owner-b")
    run = await life.write(start_step(run))
    await life.write(end_run(run, RunStatus.FAILED))


OWNED_LIVES: dict[str, OwnedLife] = {
    "taken over": taken_over,
    "forsaken": forsaken,
    "claimed after approval": claimed_after_approval,
}


class WholeClaims(ContractHarness):
    """Claims, and records of runs that change owners, have every field."""

    @pytest.mark.parametrize("life", OWNED_LIVES.values(), ids=OWNED_LIVES)
    async def test_record_and_summary_are_whole_whoever_has_the_run(
        self, store: LeasingStore, life: OwnedLife
    ) -> None:
        await life(FollowedOwnership(store, self))


FOREIGN_CURSORS = ["nonsense", "AAAA", "W10", "eyJhIjoxfQ", "🤖", "' OR 1=1 --", "a" * 5000]


class RunListing(ContractHarness):
    """Lists of runs: newest first, with stable pages and filters."""

    async def test_runs_are_listed_newest_first_as_summaries(self, store: RunStateStore) -> None:
        runs = [await create(store, vars={"n": number}) for number in range(3)]
        page = await store.list_runs()
        assert page.items == tuple(summarize(run) for run in reversed(runs))
        assert {type(item) for item in page.items} == {RunSummary}
        assert page.cursor is None

    async def test_empty_store_lists_nothing(self, store: RunStateStore) -> None:
        page = await store.list_runs()
        assert (page.items, page.cursor) == ((), None)

    async def test_pages_hold_every_run_once_whatever_is_inserted(
        self, store: RunStateStore
    ) -> None:
        there = [(await create(store)).run_id for _ in range(7)]
        seen: list[str] = []
        sizes: list[int] = []
        async for page in pages(store.list_runs, limit=2):
            seen += [item.run_id for item in page]
            sizes.append(len(page))
            await create(store)
        assert seen == list(reversed(there))
        assert sizes == [2, 2, 2, 1]

    async def test_pages_hold_every_run_once_while_others_write(self, store: RunStateStore) -> None:
        there = {(await create(store)).run_id for _ in range(10)}
        seen: list[str] = []

        async def read_all() -> None:
            async for page in pages(store.list_runs, limit=3):
                seen.extend(item.run_id for item in page)

        async def insert() -> None:
            for _ in range(10):
                await store.create_run(new_run())

        _, errors = await at_once([read_all(), insert()])
        assert not errors
        assert len(seen) == len(set(seen))
        assert there <= set(seen)

    async def test_change_of_a_run_does_not_move_it(self, store: RunStateStore) -> None:
        first, second = await create_embedded(store), await create_embedded(store, "owner-b")
        await store.update_run(change_run(first, message="busy"))
        listed = [item.run_id for item in (await store.list_runs()).items]
        assert listed == [second.run_id, first.run_id]

    async def test_last_page_that_is_just_full_has_no_cursor(self, store: RunStateStore) -> None:
        for _ in range(4):
            await create(store)
        first = await store.list_runs(limit=2)
        assert first.cursor is not None
        assert (await store.list_runs(limit=2, cursor=first.cursor)).cursor is None

    async def test_filters_hold_on_every_page(self, store: RunStateStore) -> None:
        for number in range(9):
            await create(store, queue="odd" if number % 2 else "even")
        where = RunFilter(queue="even")
        first = await store.list_runs(where, limit=3)
        rest = await store.list_runs(where, limit=3, cursor=first.cursor)
        queues = [item.queue for item in (*first.items, *rest.items)]
        assert queues == ["even"] * 5
        assert rest.cursor is None

    @pytest.mark.parametrize("cursor", FOREIGN_CURSORS, ids=ascii)
    async def test_foreign_cursor_is_refused(self, store: RunStateStore, cursor: str) -> None:
        await create(store)
        await refused(InvalidCursor, store.list_runs(cursor=cursor))

    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            (RunFilter(), "abcd"),
            (RunFilter(statuses=frozenset({RunStatus.QUEUED})), "a"),
            (RunFilter(statuses=frozenset({RunStatus.RUNNING, RunStatus.FAILED})), "bcd"),
            (RunFilter(statuses=frozenset({RunStatus.SUCCESS})), ""),
            (RunFilter(workflow_name="backup"), "bd"),
            (RunFilter(workflow_name="back"), ""),
            (RunFilter(queue="gpu"), "c"),
            (RunFilter(labels={"team": "web"}), "ac"),
            (RunFilter(labels={"team": "web", "env": "prod"}), "c"),
            (RunFilter(labels={"team": "prod"}), ""),
            (RunFilter(owner_id="owner-b"), "b"),
            (RunFilter(owner_id="owner-c"), "c"),
            (RunFilter(owner_id="owner-d"), ""),
            (RunFilter(workflow_name="backup", owner_id="owner-b"), "b"),
            (RunFilter(workflow_name="backup", owner_id="owner-c"), ""),
            (RunFilter(queue="gpu", statuses=frozenset({RunStatus.RUNNING})), "c"),
            (RunFilter(queue="gpu", statuses=frozenset({RunStatus.QUEUED})), ""),
            (RunFilter(queue="gpu", workflow_name="backup"), ""),
            (RunFilter(owner_id="owner-b", statuses=frozenset({RunStatus.RUNNING})), "b"),
            (RunFilter(owner_id="owner-b", statuses=frozenset({RunStatus.QUEUED})), ""),
            (RunFilter(queue="half a pair: \ud800"), ""),
            (RunFilter(labels={"team": "\ud800"}), ""),
            (RunFilter(workflow_name="\ud800"), ""),
        ],
    )
    async def test_filters(self, store: RunStateStore, where: RunFilter, expected: str) -> None:
        both: dict[str, Any] = {"labels": {"team": "web", "env": "prod"}, "queue": "gpu"}
        names = {
            (await create(store, labels={"team": "web"})).run_id: "a",
            (await create_embedded(store, "owner-b", workflow_name="backup")).run_id: "b",
            (await create_embedded(store, "owner-c", **both)).run_id: "c",
        }
        failed = await create_embedded(store, "owner-d", workflow_name="backup")
        await write(store, end_run(failed, RunStatus.FAILED))
        names[failed.run_id] = "d"
        found = [names[item.run_id] for item in (await store.list_runs(where)).items]
        assert "".join(sorted(found)) == expected
        assert found == sorted(found, reverse=True)

    async def test_filter_by_time_of_creation(self, store: RunStateStore) -> None:
        """From is inclusive, to is exclusive."""
        runs = []
        for _ in range(3):
            runs.append(await create(store))
            await self.pass_time(0.01)
        first, second, third = runs
        assert second.created_at is not None

        async def listed(**window: Any) -> list[str]:
            page = await store.list_runs(RunFilter(**window))
            return [item.run_id for item in page.items]

        at = second.created_at
        assert await listed(created_from=at) == [third.run_id, second.run_id]
        assert await listed(created_to=at) == [first.run_id]
        tick = timedelta(microseconds=1)
        assert await listed(created_from=at, created_to=at + tick) == [second.run_id]
        assert await listed(created_from=at + tick, created_to=at + tick) == []
        ever = {
            "created_from": datetime.fromisoformat("0001-01-01T00:00:00+14:00"),
            "created_to": datetime.fromisoformat("9999-12-31T23:59:59-14:00"),
        }
        assert await listed(**ever) == [third.run_id, second.run_id, first.run_id]

    async def test_listed_summary_is_as_fresh_as_the_snapshot(self, store: RunStateStore) -> None:
        run = await write(store, end_run(await create_embedded(store), RunStatus.FAILED))
        assert (await store.list_runs()).items == (summarize(run),)


HELD, UNAPPROVED = RunFilter(held=True), RunFilter(unapproved=True)
QUEUED, RUNNING = frozenset({RunStatus.QUEUED}), frozenset({RunStatus.RUNNING})


class FewAmongMany(ContractHarness):
    """Lists of owned and of unapproved runs, which every runner reads every few seconds."""

    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            (HELD, "cd"),
            (RunFilter(held=True, statuses=QUEUED | RUNNING), "cd"),
            (RunFilter(held=True, statuses=QUEUED), ""),
            (RunFilter(held=True, owner_id="owner-d"), "d"),
            (RunFilter(held=True, workflow_name="backup"), "d"),
            (RunFilter(held=True, queue="gpu"), "d"),
            (RunFilter(held=True, labels={"team": "web"}), "c"),
            (RunFilter(held=True, labels={"team": "web"}, queue="gpu"), ""),
            (UNAPPROVED, "ab"),
            (RunFilter(unapproved=True, statuses=QUEUED), "ab"),
            (RunFilter(unapproved=True, statuses=RUNNING), ""),
            (RunFilter(unapproved=True, workflow_name="backup"), "b"),
            (RunFilter(unapproved=True, queue="gpu"), "b"),
            (RunFilter(unapproved=True, labels={"team": "web"}), "a"),
            (RunFilter(unapproved=True, labels={"team": "web"}, queue="gpu"), ""),
            (RunFilter(unapproved=True, owner_id="owner-c"), ""),
            (RunFilter(unapproved=True, held=True), ""),
        ],
    )
    async def test_few_are_found_among_others_like_them(
        self, store: RunStateStore, where: RunFilter, expected: str
    ) -> None:
        web = {"labels": {"team": "web"}}
        gpu = {"workflow_name": "backup", "queue": "gpu"}
        names = {
            (await create(store, approval=ASKS, **web)).run_id: "a",
            (await create(store, approval=ASKS, **gpu)).run_id: "b",
            (await create_embedded(store, "owner-c", **web)).run_id: "c",
            (await create_embedded(store, "owner-d", **gpu)).run_id: "d",
        }
        for like in (web, gpu):
            await create(store, **like)
            await create(store, approval=Approval(required=True, by="ann"), **like)
            await write(store, end_run(await create_embedded(store, **like), RunStatus.FAILED))
            await write(store, cancel(await create(store, approval=ASKS, **like)))
        found = [names.get(item.run_id, "?") for item in (await store.list_runs(where)).items]
        assert found == sorted(expected, reverse=True)

    @pytest.mark.parametrize("where", [HELD, UNAPPROVED], ids=["held", "unapproved"])
    async def test_few_are_each_on_one_page(self, store: RunStateStore, where: RunFilter) -> None:
        wanted = []
        for _ in range(5):
            new = create_embedded(store) if where.held else create(store, approval=ASKS)
            wanted.append(await new)
            await create(store)
        pages = [await store.list_runs(where, limit=2)]
        while pages[-1].cursor is not None:
            pages.append(await store.list_runs(where, limit=2, cursor=pages[-1].cursor))
        newest_first = [summarize(run) for run in reversed(wanted)]
        assert [item for page in pages for item in page.items] == newest_first
        assert [len(page.items) for page in pages] == [2, 2, 1]

    async def test_released_run_is_held_by_nobody(self, store: RunStateStore) -> None:
        run = await create_embedded(store)
        assert await _few_listed(store, HELD) == [run.run_id]
        released = await write(store, owner_update(run, Changes(), release=True))
        assert (released.status, released.owner_id) == (RunStatus.RUNNING, None)
        assert await _few_listed(store, HELD) == []

    async def test_run_whose_owner_is_lost_is_still_held(self, store: RunStateStore) -> None:
        run = await create_embedded(store, seconds=self.lease_seconds)
        await self.expire_leases()
        assert await _few_listed(store, HELD) == [run.run_id]

    @pytest.mark.parametrize("more", [{}, {"owner_id": "owner-a"}, {"statuses": RUNNING}])
    async def test_run_that_its_owner_was_asked_to_cancel_is_found(
        self, store: RunStateStore, more: dict[str, Any]
    ) -> None:
        """Not one that was canceled at once, or that has ended."""
        where = RunFilter(canceling=True, **more)
        run, other = await create_embedded(store), await create_embedded(store)
        await write(store, cancel(await create(store)))
        assert await _few_listed(store, where) == []
        other = await write(store, cancel(other))
        await write(store, cancel(run))
        await write(store, end_run(other, RunStatus.CANCELED))
        assert await _few_listed(store, where) == [run.run_id]

    async def test_approved_run_waits_no_more(self, store: RunStateStore) -> None:
        run, other = await create(store, approval=ASKS), await create(store, approval=ASKS)
        assert await _few_listed(store, UNAPPROVED) == [other.run_id, run.run_id]
        await store.update_run(approve(run))
        assert await _few_listed(store, UNAPPROVED) == [other.run_id]

    async def test_overdue_run_waits_until_somebody_ends_it(self, store: RunStateStore) -> None:
        run = await waiting(store, self.lease_seconds)
        await self.expire_leases()
        assert await _few_listed(store, UNAPPROVED) == [run.run_id]
        await store.update_run(expire(run))
        assert await _few_listed(store, UNAPPROVED) == []


async def _few_listed(store: RunStateStore, where: RunFilter) -> list[str]:
    return [item.run_id for item in (await store.list_runs(where)).items]
