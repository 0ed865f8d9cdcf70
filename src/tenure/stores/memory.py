"""A store in the memory of one process: for tests, trials, and ``tracking`` off.

It implements every protocol but ``Upkeep`` and passes the whole contract suite. ``model`` decides;
one lock guards the dictionaries, so several threads and event loops may use it. It returns copies.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import count, islice
from secrets import token_bytes
from typing import NamedTuple, Self

from msgspec.structs import replace

from tenure.model.codec import copied, storable
from tenure.model.decide import Circumstances, apply, waits_for_approval
from tenure.model.errors import DeliveryNotFound, LeaseLost, RunNotFound, StoreRejected, TenureError
from tenure.model.leases import (
    OLDEST_EVERY,
    Beginning,
    ClaimedRun,
    ClaimRequest,
    Lease,
    LeaseToken,
    Purpose,
    Renewal,
    WaitingRun,
    already_retried,
    begin,
    check_repeated,
    check_same_token,
    claim,
    create,
    holds,
    present,
    release,
    why_not_runnable,
)
from tenure.model.outbox import (
    Delivery,
    Outcome,
    RetryLater,
    Settlement,
    as_callback_error,
    origin_of,
    requeue,
    settle,
)
from tenure.model.query import (
    Ownership,
    Page,
    RunFilter,
    bounded_limit,
    check_age,
    decode_cursor,
    encode_cursor,
    news,
    ownerships,
)
from tenure.model.snapshot import RunSnapshot, RunSummary, summarize
from tenure.model.status import DeliveryState, RunStatus
from tenure.model.tokens import Token
from tenure.model.update import (
    Event,
    FeedPage,
    Fencing,
    LeaseRequest,
    NewDelivery,
    NewRun,
    Position,
    Receipt,
    RecordedEvent,
    Update,
    Write,
    receipt,
    record,
    run_id_of,
)
from tenure.ports.environment import Clock
from tenure.ports.leases import WorkerInfo
from tenure.ports.store import Census, LogKey, LogName, LogSlice, QueueLength
from tenure.stores.lease_clock import Instant, LeaseClock, LeaseEnd, shown
from tenure.system import SystemClock

_NEWEST = 1 << 62


class _Version(NamedTuple):
    """A row of a run's journal."""

    number: int
    """Its place in the feed of all runs."""
    update_id: str
    events: tuple[RecordedEvent, ...]


class _Run:
    """One run; ``journal[v - 1]`` is the row of version ``v``."""

    def __init__(self, number: int, snapshot: RunSnapshot, definition: str | None) -> None:
        self.number = number
        self.snapshot = snapshot
        self.definition = definition
        self.definition_digest = definition and sha256(definition.encode()).hexdigest()
        self.lease_until: LeaseEnd | None = None
        self.claim_id: str | None = None
        self.token: LeaseToken | None = None
        self.retry_root: str | None = None
        self.journal: list[_Version] = []
        self.output: dict[LogKey, bytearray] = {}

    def update_id_of(self, version: int) -> str | None:
        return self.journal[version - 1].update_id if 1 <= version <= len(self.journal) else None

    def is_held_under(self, request: LeaseRequest | ClaimRequest) -> bool:
        same = (self.snapshot.owner_id, self.claim_id) == (request.owner_id, request.claim_id)
        return same and request.token_id in (None, self.token and self.token.token_id)


class _Delivery:
    def __init__(self, number: int, delivery: Delivery) -> None:
        self.number = number
        self.delivery = delivery
        self.rests_until: LeaseEnd | None = None
        """Not claimable before: it is being sent, or its retry is not due."""


class InMemoryStore:
    """Every store protocol but ``Upkeep``, kept in dictionaries."""

    durable = False

    def __init__(self, clock: Clock | None = None) -> None:
        self._lock = threading.RLock()
        self._clock = LeaseClock(clock or SystemClock())
        self._numbers = count(1)
        """Of runs and deliveries: order and cursor of lists, never reused."""
        self._runs: dict[str, _Run] = {}
        self._unfinished: dict[str, _Run] = {}
        self._statuses: Counter[RunStatus] = Counter()
        self._changes: dict[int, _Version] = {}
        self._newest_change = 0
        self._deliveries: dict[str, _Delivery] = {}
        self._waiting: dict[str, _Delivery] = {}
        self._claims = 0
        self._workers: dict[str, tuple[WorkerInfo, LeaseEnd]] = {}
        self._tokens: dict[str, Token] = {}
        self._secret = token_bytes(32)
        self._listeners: list[Callable[[frozenset[str]], None]] = []

    async def close(self) -> None:
        """Does nothing; every store has it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exit_details: object) -> None:
        await self.close()

    # Runs: RunStateStore, BatchUpdates, RunVersions and Definitions.

    async def create_run(self, new: NewRun) -> Receipt:
        with self._lock:
            return self._create(new)

    async def update_run(self, update: Update) -> Receipt:
        with self._lock:
            return self._update(update)

    async def update_runs(self, writes: Sequence[Write]) -> list[Receipt | TenureError]:
        with self._lock:
            seen: set[str] = set()
            return [self._one_of_many(write, seen) for write in writes]

    def _one_of_many(self, write: Write, seen: set[str]) -> Receipt | TenureError:
        try:
            run_id = run_id_of(write)
            if run_id in seen:
                raise StoreRejected(run_id, "is written twice in one batch")
            seen.add(run_id)
            return self._create(write) if isinstance(write, NewRun) else self._update(write)
        except TenureError as error:
            return error

    def _create(self, new: NewRun) -> Receipt:
        run_id = new.snapshot.run_id
        existing = self._runs.get(run_id)
        if existing is not None:
            check_repeated(existing.snapshot, existing.update_id_of(1), new)
            return self._receipt(existing, 1)
        self._check_new(run_id, new.deliveries)
        root = self._retry_root(new.snapshot.retry_of)
        snapshot = create(storable(run_id, new), self._clock.now())
        run = _Run(next(self._numbers), snapshot, new.definition)
        run.retry_root = root
        if new.lease is not None:
            run.lease_until = self._clock.until(new.lease.seconds)
            run.claim_id = new.lease.claim_id
        self._runs[run_id] = self._unfinished[run_id] = run
        self._write(run, snapshot, new.update_id, new.events, new.deliveries)
        return self._receipt(run, 1)

    def _retry_root(self, retry_of: str | None) -> str | None:
        """``NotRunnable`` if a retry of that chain is active."""
        if retry_of is None:
            return None
        old = self._runs.get(retry_of)
        root = (old and old.retry_root) or retry_of
        for each in self._unfinished.values():
            if each.retry_root == root:
                run = each.snapshot
                raise already_retried(retry_of, run.run_id, run.status, waits_for_approval(run))
        return root

    def _update(self, update: Update) -> Receipt:
        run = self._find(update.run_id)
        applied = apply(
            run.snapshot,
            storable(update.run_id, update),
            at=self._clock.now(),
            circumstances=self._circumstances(run, update.base_version),
        )
        if applied.effect is not None:
            deliveries = applied.effect.deliveries
            self._check_new(update.run_id, deliveries)
            events = applied.effect.events
            self._write(run, applied.snapshot, update.update_id, events, deliveries)
        return self._receipt(run, applied.version)

    def _circumstances(self, run: _Run, base_version: int | None) -> Circumstances:
        return Circumstances(
            lease_live=self._is_live(run),
            applied_id=None if base_version is None else run.update_id_of(base_version + 1),
            lease_expires_at=shown(run.lease_until),
        )

    def _check_new(self, run_id: str, deliveries: tuple[NewDelivery, ...]) -> None:
        for delivery in deliveries:
            if delivery.id in self._deliveries:
                raise StoreRejected(run_id, f"delivery id {delivery.id} is taken")

    def _write(
        self,
        run: _Run,
        snapshot: RunSnapshot,
        update_id: str,
        events: tuple[Event, ...],
        deliveries: tuple[NewDelivery, ...] = (),
    ) -> None:
        """State, journal row and deliveries of one version, together."""
        before = run.snapshot if run.journal else None
        if self._listeners:
            topics = frozenset(news(before, snapshot, self._clock.now()))
            for hear in self._listeners:
                hear(topics)
        if before is not None:
            self._statuses[before.status] -= 1
        self._statuses[snapshot.status] += 1
        run.snapshot = snapshot
        if snapshot.owner_id is None:
            run.lease_until = run.claim_id = None
        if snapshot.ended:
            self._unfinished.pop(snapshot.run_id, None)
        at = snapshot.updated_at or self._clock.now()
        recorded = tuple(
            record(
                event,
                run_id=snapshot.run_id,
                version=snapshot.version,
                seq=seq,
                at=at,
                fence=snapshot.fence,
            )
            for seq, event in enumerate(events)
        )
        self._newest_change += 1
        row = _Version(self._newest_change, update_id, recorded)
        run.journal.append(row)
        self._changes[row.number] = row
        self._enqueue(snapshot, recorded, deliveries)

    def _enqueue(
        self,
        run: RunSnapshot,
        recorded: tuple[RecordedEvent, ...],
        deliveries: tuple[NewDelivery, ...],
    ) -> None:
        """Due now: ``updated_at`` may be ahead of a clock that was set back."""
        due_at = self._clock.now()
        targets = {target.name: target for target in run.callbacks}
        for new in deliveries:
            delivery = Delivery(
                id=new.id,
                run_id=run.run_id,
                workflow_name=run.workflow_name,
                target=targets[new.target],
                event=recorded[new.seq],
                run_status=run.status,
                due_at=due_at,
            )
            kept = _Delivery(next(self._numbers), delivery)
            self._deliveries[new.id] = self._waiting[new.id] = kept

    async def get_run(self, run_id: str) -> RunSnapshot:
        with self._lock:
            return copied(self._seen(self._find(run_id)))

    async def versions_of(self, run_ids: Collection[str]) -> dict[str, int]:
        with self._lock:
            runs = self._runs
            return {each: runs[each].snapshot.version for each in run_ids if each in runs}

    async def list_runs(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        (before,) = decode_cursor("runs", cursor, 1) if cursor else (_NEWEST,)
        limit = bounded_limit(limit)
        with self._lock:
            newest_first = reversed(self._runs.values())
            matching = (
                run for run in newest_first if run.number < before and where.matches(run.snapshot)
            )
            found = list(islice(matching, limit + 1))
            return self._page(found, limit, "runs", lambda run: (run.number,))

    def _page(
        self, found: list[_Run], limit: int, listing: str, place: Callable[[_Run], tuple[int, ...]]
    ) -> Page[RunSummary]:
        page = found[:limit]
        return Page(
            items=tuple(copied(summarize(self._seen(run))) for run in page),
            cursor=encode_cursor(listing, *place(page[-1])) if len(found) > limit else None,
        )

    async def get_definition(self, run_id: str) -> str | None:
        with self._lock:
            return self._find(run_id).definition

    def _find(self, run_id: str) -> _Run:
        run = self._runs.get(run_id)
        if run is None:
            raise RunNotFound(run_id)
        return run

    def _seen(self, run: _Run) -> RunSnapshot:
        """The record as of now; shared with the store: copy it before returning it."""
        expires_at = shown(run.lease_until)
        return present(run.snapshot, lease_live=self._is_live(run), expires_at=expires_at)

    def _is_live(self, run: _Run) -> bool:
        return run.snapshot.owner_id is not None and self._clock.is_live(run.lease_until)

    def _receipt(self, run: _Run, version: int) -> Receipt:
        return receipt(run.snapshot, version, shown(run.lease_until))

    # Histories: EventLog and ChangeFeed.

    async def read_events(
        self, run_id: str, after: Position = Position(), *, limit: int = 1000
    ) -> list[RecordedEvent]:
        with self._lock:
            rows = self._find(run_id).journal[max(after.version - 1, 0) :]
            events = [event for row in rows for event in row.events if event.position > after]
            return [copied(event) for event in events[: max(limit, 1)]]

    async def read_changes(self, after: str | None = None, *, limit: int = 1000) -> FeedPage:
        (number,) = decode_cursor("changes", after, 1) if after else (0,)
        events: list[RecordedEvent] = []
        with self._lock:
            left = bounded_limit(limit)
            while number < self._newest_change and left:
                number += 1
                row = self._changes.get(number)
                if row is not None:
                    events += map(copied, row.events)
                    left -= 1
        return FeedPage(events=tuple(events), cursor=encode_cursor("changes", number))

    async def newest_change(self) -> str:
        with self._lock:
            return encode_cursor("changes", self._newest_change)

    # Ownership: LeaseStore, OwnerListing and Beginnings.

    async def list_owners(self) -> list[Ownership]:
        with self._lock:
            return ownerships(self._seen(run) for run in self._unfinished.values())

    async def list_runnable(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        after = decode_cursor("runnable", cursor, 3) if cursor else None
        limit = bounded_limit(limit)
        with self._lock:
            found = [
                run
                for run in self._free()
                if where.matches(run.snapshot) and (after is None or _by_priority(run) > after)
            ]
            return self._page(sorted(found, key=_by_priority), limit, "runnable", _by_priority)

    async def claim_run(
        self, run_id: str, request: LeaseRequest, purpose: Purpose = Purpose.EXECUTE
    ) -> ClaimedRun:
        with self._lock:
            run = self._find(run_id)
            held = run.snapshot.owner_id is not None and (
                not self._is_over(run, request.expired) or run.is_held_under(request)
            )
            return self._claim(run, request, purpose, held)

    async def claim_runs(self, request: ClaimRequest) -> list[ClaimedRun]:
        with self._lock:
            repeated = [run for run in self._unfinished.values() if run.is_held_under(request)]
            repeated.sort(key=_by_priority)
            return [
                self._claim(run, request.lease, request.purpose, held=bool(repeated))
                for run in repeated or self._pick(request)
            ]

    def _pick(self, request: ClaimRequest) -> list[_Run]:
        waiting = [
            run
            for run in self._free(request)
            if request.purpose is Purpose.RECONCILE or run.snapshot.queue in request.queues
        ]
        picked: list[_Run] = []
        while waiting and len(picked) < request.limit:
            self._claims += 1
            oldest = self._claims % OLDEST_EVERY == 0
            chosen = min(waiting, key=_by_age if oldest else _by_priority)
            waiting.remove(chosen)
            picked.append(chosen)
        return picked

    def _free(self, request: ClaimRequest | None = None) -> Iterator[_Run]:
        """Claimable runs: without an owner, or with one whose lease is over."""
        purpose = request.purpose if request else Purpose.EXECUTE
        at = self._clock.now()
        for run in list(self._unfinished.values()):
            owner = run.snapshot.owner_id
            is_free = (
                owner is None
                or (request is not None and owner in request.dead_owners)
                or self._is_over(run, request is None or request.expired)
            )
            if is_free and why_not_runnable(run.snapshot, at, purpose) is None:
                yield run

    def _is_over(self, run: _Run, expired: bool) -> bool:
        """``expired`` false: only if its owner is gone for certain."""
        instant = self._clock.read()
        if expired:
            return not instant.is_live(run.lease_until)
        return instant.rebooted_since(run.lease_until)

    def _claim(self, run: _Run, request: LeaseRequest, purpose: Purpose, held: bool) -> ClaimedRun:
        """Renews a run that this owner already holds."""
        instant = self._clock.read()
        taken = claim(
            run.snapshot,
            request.owner_id,
            at=instant.now,
            lease_live=held,
            expires_at=shown(run.lease_until),
            purpose=purpose,
        )
        until = instant.extended(run.lease_until if taken.event is None else None, request.seconds)
        if taken.event is None:
            check_same_token(taken.snapshot, run.token, request)
        else:
            self._write(run, taken.snapshot, request.claim_id, (taken.event,))
            if request.token_id is not None:
                run.token = LeaseToken(run.snapshot.fence, request.token_id)
        run.lease_until = until
        run.claim_id = request.claim_id
        lease = Lease(
            run_id=run.snapshot.run_id,
            owner_id=request.owner_id,
            fence=run.snapshot.fence,
            expires_at=until.wall,
        )
        return ClaimedRun(
            lease=lease, snapshot=copied(self._seen(run)), definition_digest=run.definition_digest
        )

    async def renew_leases(self, leases: Sequence[Lease], seconds: float) -> list[Renewal]:
        with self._lock:
            return [self._renew(lease, seconds) for lease in leases]

    def _renew(self, lease: Lease, seconds: float) -> Renewal:
        run = self._runs.get(lease.run_id)
        if run is None or not holds(run.snapshot, lease.fencing):
            return Renewal(run_id=lease.run_id, ok=False)
        run.lease_until = self._clock.read().extended(run.lease_until, seconds)
        return Renewal(
            run_id=lease.run_id,
            ok=True,
            expires_at=shown(run.lease_until),
            cancel_requested_at=run.snapshot.cancel_requested_at,
            version=run.snapshot.version,
        )

    async def release_lease(self, run_id: str, fencing: Fencing, update_id: str) -> None:
        with self._lock:
            run = self._find(run_id)
            released = release(run.snapshot, fencing, self._clock.now())
            if released.event is not None:
                self._write(run, released.snapshot, update_id, (released.event,))

    async def find_waiting(self, queues: Sequence[str], *, limit: int) -> list[WaitingRun]:
        with self._lock:
            now = self._clock.now()
            found = sorted(
                (
                    run
                    for run in self._unfinished.values()
                    if run.snapshot.queue in queues and _waits(run.snapshot, now)
                ),
                key=_by_priority,
            )
            return [
                WaitingRun(
                    snapshot=copied(self._seen(run)), definition_digest=run.definition_digest
                )
                for run in found[:limit]
            ]

    async def begin_run(self, beginning: Beginning) -> Receipt:
        with self._lock:
            run = self._find(beginning.run_id)
            given = storable(beginning.run_id, beginning)
            applied = begin(
                run.snapshot,
                given,
                at=self._clock.now(),
                applied_id=self._circumstances(run, given.base_version).applied_id,
            )
            if applied.effect is not None:
                deliveries = applied.effect.deliveries
                self._check_new(given.run_id, deliveries)
                events = applied.effect.events
                self._write(run, applied.snapshot, given.update_id, events, deliveries)
                run.lease_until = self._clock.until(given.lease.seconds)
                run.claim_id = given.lease.claim_id
            return self._receipt(run, applied.version)

    # Callbacks: Outbox and OutboxBatches.

    async def claim_deliveries(
        self,
        token: str,
        *,
        limit: int = 100,
        seconds: float = 60.0,
        per_origin: int | None = None,
        except_origins: Collection[str] = (),
        only: Collection[str] | None = None,
    ) -> list[Delivery]:
        with self._lock:
            instant = self._clock.read()
            claimed = [kept for kept in self._waiting.values() if kept.delivery.token == token]
            if not claimed:
                due: Iterable[_Delivery] = self._due(instant)
                if only is not None:
                    due = [kept for kept in due if kept.delivery.id in only]
                most = limit if per_origin is None else per_origin
                claimed = list(islice(_spread(due, most, except_origins), max(limit, 0)))
            for kept in claimed:
                kept.delivery = replace(kept.delivery, token=token)
                kept.rests_until = instant.until(seconds)
            return [copied(kept.delivery) for kept in claimed]

    def _due(self, instant: Instant) -> list[_Delivery]:
        """The first unsettled delivery of each run and target, unless it rests or a later one (sent
        before a redelivery) is in flight; soonest due first."""
        heads: dict[tuple[str, str], _Delivery] = {}
        in_flight: set[tuple[str, str]] = set()
        for kept in self._waiting.values():
            delivery = kept.delivery
            key = (delivery.run_id, delivery.target.name)
            if delivery.token is not None and instant.is_live(kept.rests_until):
                in_flight.add(key)
            head = heads.get(key)
            if head is None or delivery.event.position < head.delivery.event.position:
                heads[key] = kept
        due = [
            head
            for key, head in heads.items()
            if key not in in_flight and not instant.is_live(head.rests_until)
        ]
        return sorted(due, key=lambda kept: kept.delivery.due_at)

    async def settle_delivery(self, delivery_id: str, token: str, outcome: Outcome) -> Delivery:
        with self._lock:
            return self._settle(Settlement(delivery_id, token, outcome))

    async def settle_deliveries(
        self, settlements: Sequence[Settlement]
    ) -> list[Delivery | TenureError]:
        with self._lock:
            return [self._settle_one_of_many(settlement) for settlement in settlements]

    async def settle_and_claim(
        self,
        settlements: Sequence[Settlement],
        token: str,
        *,
        limit: int = 100,
        seconds: float = 60.0,
        per_origin: int | None = None,
        except_origins: Collection[str] = (),
        only: Collection[str] | None = None,
    ) -> tuple[list[Delivery | TenureError], list[Delivery]]:
        with self._lock:
            answers = await self.settle_deliveries(settlements)
            return answers, await self.claim_deliveries(
                token,
                limit=limit,
                seconds=seconds,
                per_origin=per_origin,
                except_origins=except_origins,
                only=only,
            )

    def _settle_one_of_many(self, settlement: Settlement) -> Delivery | TenureError:
        try:
            return self._settle(settlement)
        except TenureError as error:
            return error

    def _settle(self, settlement: Settlement) -> Delivery:
        kept = self._find_delivery(settlement.delivery_id)
        delivery = kept.delivery
        outcome = storable(delivery.run_id, settlement).outcome
        instant = self._clock.read()
        rest = instant.rest(outcome.delay if isinstance(outcome, RetryLater) else 0.0)
        settled = settle(delivery, settlement.token, outcome, at=instant.now, due_at=rest.wall)
        if settled is not delivery:
            kept.delivery = settled
            kept.rests_until = rest
            if settled.state is not DeliveryState.WAITING:
                del self._waiting[delivery.id]
                if settled.died_at or delivery.died_at:
                    self._show_newest_dead_letter(settled.run_id)
        return copied(settled)

    def _show_newest_dead_letter(self, run_id: str) -> None:
        dead = [
            (kept.delivery.died_at, kept.number, kept.delivery)
            for kept in self._deliveries.values()
            if kept.delivery.run_id == run_id and kept.delivery.died_at is not None
        ]
        error = as_callback_error(max(dead)[-1]) if dead else None
        run = self._find(run_id)
        run.snapshot = replace(run.snapshot, callback_error=error)

    async def list_deliveries(
        self,
        *,
        state: DeliveryState | None = None,
        run_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Delivery]:
        (before,) = decode_cursor("deliveries", cursor, 1) if cursor else (_NEWEST,)
        limit = bounded_limit(limit)
        with self._lock:
            found = [
                kept
                for kept in reversed(self._deliveries.values())
                if kept.number < before
                and (state is None or kept.delivery.state is state)
                and (run_id is None or kept.delivery.run_id == run_id)
            ]
            page = found[:limit]
            return Page(
                items=tuple(copied(kept.delivery) for kept in page),
                cursor=encode_cursor("deliveries", page[-1].number) if len(found) > limit else None,
            )

    async def get_delivery(self, delivery_id: str) -> Delivery:
        with self._lock:
            return copied(self._find_delivery(delivery_id).delivery)

    async def requeue_delivery(self, delivery_id: str) -> Delivery:
        with self._lock:
            kept = self._find_delivery(delivery_id)
            kept.delivery = requeue(kept.delivery, self._clock.now())
            self._waiting[delivery_id] = kept
            return copied(kept.delivery)

    def _find_delivery(self, delivery_id: str) -> _Delivery:
        kept = self._deliveries.get(delivery_id)
        if kept is None:
            raise DeliveryNotFound(delivery_id)
        return kept

    # Output of tasks: LogStore, LogListing and LogSizes.

    async def append(
        self, run_id: str, fencing: Fencing, key: LogKey, offset: int, data: bytes
    ) -> int:
        key = storable(run_id, key)
        with self._lock:
            run = self._find(run_id)
            if not holds(run.snapshot, fencing):
                raise LeaseLost(run_id, fence=run.snapshot.fence, owner_id=run.snapshot.owner_id)
            stream = run.output.setdefault(key, bytearray())
            known = bytes(stream[offset : offset + len(data)])
            if not 0 <= offset <= len(stream) or not data.startswith(known):
                raise StoreRejected(run_id, f"output at {offset} does not continue {len(stream)}")
            stream += data[len(known) :]
            return len(stream)

    async def read(
        self, run_id: str, key: LogKey, offset: int = 0, *, limit: int = 65536
    ) -> LogSlice:
        with self._lock:
            stream = self._find(run_id).output.get(key, bytearray())
            offset = max(offset, 0)
            data = bytes(stream[offset : offset + max(limit, 0)])
            return LogSlice(offset=offset, data=data, size=len(stream))

    async def list_logs(self, run_id: str) -> list[LogKey]:
        with self._lock:
            output = self._find(run_id).output
            return sorted((key for key, stream in output.items() if stream), key=_by_place)

    async def sizes_of(self, names: Collection[LogName]) -> dict[LogName, int]:
        with self._lock:
            return {
                (run_id, key): len(self._runs[run_id].output.get(key, b""))
                for run_id, key in names
                if run_id in self._runs
            }

    # WorkerRegistry and TokenStore.

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        with self._lock:
            seen = replace(copied(worker), seen_at=self._clock.now())
            self._workers[worker.owner_id] = (seen, self._clock.until(seconds))
            self._workers = {
                owner: entry
                for owner, entry in self._workers.items()
                if self._clock.is_live(entry[1])
            }

    async def list_workers(self) -> list[WorkerInfo]:
        with self._lock:
            return [
                copied(worker)
                for _, (worker, until) in sorted(self._workers.items())
                if self._clock.is_live(until)
            ]

    async def add_token(self, token: Token) -> Token:
        with self._lock:
            return self._tokens.setdefault(token.id, replace(token, created_at=self._clock.now()))

    async def add_first_token(self, token: Token) -> bool:
        with self._lock:
            if not self._tokens:
                self._tokens[token.id] = replace(token, created_at=self._clock.now())
            return token.id in self._tokens and self._tokens[token.id].digest == token.digest

    async def list_tokens(self) -> list[Token]:
        with self._lock:
            return list(self._tokens.values())

    async def revoke_token(self, token_id: str) -> Token | None:
        with self._lock:
            token = self._tokens.get(token_id)
            if token is not None and token.revoked_at is None:
                token = self._tokens[token_id] = replace(token, revoked_at=self._clock.now())
            return token

    async def lease_tokens(self, run_ids: Collection[str]) -> dict[str, LeaseToken]:
        with self._lock:
            found = ((run_id, self._runs.get(run_id)) for run_id in run_ids)
            return {run_id: run.token for run_id, run in found if run and run.token}

    async def token_secret(self) -> bytes:
        return self._secret

    # Wakeups.

    @asynccontextmanager
    async def listen(
        self, topics: Collection[str], heard: Callable[[], None]
    ) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()

        def hear(announced: frozenset[str], wanted: frozenset[str] = frozenset(topics)) -> None:
            if announced & wanted:
                with suppress(RuntimeError):  # its loop has ended
                    loop.call_soon_threadsafe(heard)

        with self._lock:
            self._listeners.append(hear)
        loop.call_soon(heard)
        try:
            yield
        finally:
            with self._lock:
                self._listeners.remove(hear)

    # StoreClock, CensusTaking and Retention.

    async def store_time(self) -> datetime:
        return self._clock.now()

    async def take_census(self, *, most: int = 10_000) -> Census:
        with self._lock:
            now = self._clock.now()
            ready: dict[str, list[datetime]] = defaultdict(list)
            for run in (each.snapshot for each in self._unfinished.values()):
                if _waits(run, now):
                    ready[run.queue].append(run.run_after or run.created_at or now)
            states = Counter(kept.delivery.state for kept in self._deliveries.values())
            return Census(
                runs={status: min(self._statuses[status], most) for status in RunStatus},
                callbacks_waiting=min(states[DeliveryState.WAITING], most),
                callbacks_dead=min(states[DeliveryState.DEAD], most),
                queues=tuple(
                    QueueLength(
                        queue=queue,
                        runs=min(len(since), most),
                        oldest_seconds=max((now - min(since)).total_seconds(), 0.0),
                    )
                    for queue, since in sorted(ready.items())[:most]
                ),
            )

    async def prune_runs(self, older_than: float, *, limit: int = 100) -> int:
        check_age(older_than)
        with self._lock:
            ended_before = self._clock.now() - timedelta(seconds=older_than)
            calling = {kept.delivery.run_id for kept in self._waiting.values()}
            old = [
                (finished_at, run.number, run_id)
                for run_id, run in self._runs.items()
                if (finished_at := run.snapshot.finished_at) is not None
                and finished_at < ended_before
                and run_id not in calling
            ]
            pruned = {run_id for *_, run_id in sorted(old)[: max(limit, 0)]}
            for run_id in pruned:
                run = self._runs.pop(run_id)
                self._statuses[run.snapshot.status] -= 1
                for row in run.journal:
                    del self._changes[row.number]
            for delivery_id, kept in list(self._deliveries.items()):
                if kept.delivery.run_id in pruned:
                    del self._deliveries[delivery_id]
            return len(pruned)


def _waits(run: RunSnapshot, at: datetime) -> bool:
    return run.owner_id is None and why_not_runnable(run, at) is None


def _by_age(run: _Run) -> tuple[int, ...]:
    """By the moment it could first have run; a ``run_after`` before creation has no effect."""
    snapshot = run.snapshot
    moments = [at for at in (snapshot.run_after, snapshot.created_at) if at is not None]
    return (int(max(moments).timestamp() * 1_000_000) if moments else 0, run.number)


def _by_priority(run: _Run) -> tuple[int, ...]:
    return (-run.snapshot.priority, *_by_age(run))


def _by_place(key: LogKey) -> tuple[int, str, int, int, str]:
    return key.step, key.host, -1 if key.item is None else key.item, key.attempt, key.stream


def _spread(
    due: Iterable[_Delivery], per_origin: int, except_origins: Collection[str]
) -> Iterator[_Delivery]:
    """At most ``per_origin`` of each origin, none of ``except_origins``."""
    taken: Counter[str] = Counter()
    for kept in due:
        origin = origin_of(kept.delivery.target)
        if origin not in except_origins and taken[origin] < per_origin:
            taken[origin] += 1
            yield kept
