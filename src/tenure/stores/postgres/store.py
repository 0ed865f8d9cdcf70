"""All store protocols on one PostgreSQL database, for the processes of many machines.

The store connects when it is first used. A call is one or two trips to the server and one
transaction; ``writing`` tells how a batch of updates gets by with one of each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from time import monotonic
from typing import Self

from tenure.model.errors import TenureError
from tenure.model.leases import (
    Beginning,
    ClaimedRun,
    ClaimRequest,
    Lease,
    Purpose,
    Renewal,
    WaitingRun,
)
from tenure.model.outbox import Delivery, Outcome, Settlement
from tenure.model.query import Ownership, Page, RunFilter, check_age
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.model.status import DeliveryState
from tenure.model.tokens import Token
from tenure.model.update import (
    FeedPage,
    Fencing,
    LeaseRequest,
    NewRun,
    Position,
    Receipt,
    RecordedEvent,
    Update,
    Write,
    check_lease_seconds,
)
from tenure.ports.environment import Clock
from tenure.ports.leases import WorkerInfo
from tenure.ports.store import Census, LogKey, LogName, LogSlice, StoreReport
from tenure.stores.postgres.address import Address
from tenure.stores.postgres.announcing import Announcing
from tenure.stores.postgres.beginning import Beginnings
from tenure.stores.postgres.changes import ChangeFeeding
from tenure.stores.postgres.checking import Checking
from tenure.stores.postgres.choosing import runnable
from tenure.stores.postgres.connections import Connections
from tenure.stores.postgres.counting import Counting
from tenure.stores.postgres.deciding import Deciding
from tenure.stores.postgres.echo import hears_itself
from tenure.stores.postgres.leasing import Leasing
from tenure.stores.postgres.listening import Listening
from tenure.stores.postgres.logs import Logging
from tenure.stores.postgres.offers import Offers
from tenure.stores.postgres.outbox import Outboxing, Wanted
from tenure.stores.postgres.pruning import Pruning
from tenure.stores.postgres.reading import Reading
from tenure.stores.postgres.server_clock import ServerClock
from tenure.stores.postgres.settling import Settling
from tenure.stores.postgres.tokens import Tokens
from tenure.stores.postgres.workers import Workers
from tenure.stores.postgres.writing import Writing


class PostgresStore:
    """``RunStateStore``, ``ParallelBatches``, ``LastRecords``, ``RunVersions``, ``LeaseStore``,
    ``Beginnings``, ``Offering``, ``EventLog``, ``ChangeFeed``, ``Definitions``, ``Outbox``,
    ``OutboxBatches``, ``LogStore``, ``LogListing``, ``LogSizes``, ``WorkerRegistry``,
    ``OwnerListing``, ``StoreClock``, ``CensusTaking``, ``TokenStore``, ``Wakeups``,
    ``WakeupCheck``, ``KeptApart``, ``Retention``, ``Readiness`` and ``Upkeep``."""

    durable = True

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        """``clock``: one that a test has put in the place of the server's. ``UnknownStore`` for a
        URL that cannot be meant; nothing is connected to yet."""
        self._url, self._clock = url, clock
        address = Address.parse(url)
        self.batches_at_once = address.connections
        self._connections = Connections(address, ServerClock(clock))
        self._deciding = deciding = Deciding()
        self._announcing = Announcing(self._connections)
        offers = Offers(monotonic)
        self._listening = Listening(self._connections, offers)
        self._writing = Writing(self._connections, deciding, self._announcing)
        self._leasing = Leasing(self._connections, deciding, self._announcing)
        self._beginnings = Beginnings(self._connections, deciding, offers)
        self._reading = Reading(self._connections)
        self._changes = ChangeFeeding(self._connections)
        self._outboxing = Outboxing(self._connections)
        self._settling = Settling(self._connections, self._outboxing)
        self._logging = Logging(self._connections)
        self._workers = Workers(self._connections)
        self._counting = Counting(self._connections)
        self._tokens = Tokens(self._connections)
        self._pruning = Pruning(self._connections)
        self._checking = Checking(self._connections)

    async def close(self) -> None:
        """Let go of the server. May be called twice."""
        await self._listening.close()
        await self._announcing.close()
        await self._connections.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exit_details: object) -> None:
        await self.close()

    # RunStateStore and BatchUpdates

    async def create_run(self, new: NewRun) -> Receipt:
        return await self._writing.one(new)

    async def update_run(self, update: Update) -> Receipt:
        return await self._writing.one(update)

    async def update_runs(self, writes: Sequence[Write]) -> list[Receipt | TenureError]:
        return await self._writing.many(writes)

    async def get_run(self, run_id: str) -> RunSnapshot:
        return await self._reading.snapshot(run_id)

    # LastRecords

    def last_record(self, run_id: str) -> RunSnapshot | None:
        return self._deciding.recent.last_record(run_id)

    async def versions_of(self, run_ids: Collection[str]) -> dict[str, int]:
        return await self._reading.versions(run_ids)

    async def list_runs(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        return await self._reading.page(where, limit, cursor)

    # LeaseStore

    async def list_runnable(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        return await runnable(self._connections, where, limit, cursor)

    async def claim_run(
        self, run_id: str, request: LeaseRequest, purpose: Purpose = Purpose.EXECUTE
    ) -> ClaimedRun:
        return await self._leasing.claim_one(run_id, request, purpose)

    async def claim_runs(self, request: ClaimRequest) -> list[ClaimedRun]:
        return await self._leasing.claim_many(request)

    async def renew_leases(self, leases: Sequence[Lease], seconds: float) -> list[Renewal]:
        check_lease_seconds(seconds)
        return await self._leasing.renew(leases, seconds)

    async def release_lease(self, run_id: str, fencing: Fencing, update_id: str) -> None:
        await self._leasing.release(run_id, fencing, update_id)

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[Self]:
        """With connections of its own, and nothing remembered: what another thread renews must not
        meet what this one is about to write."""
        async with type(self)(self._url, self._clock) as apart:
            yield apart

    # Beginnings

    def offered_run(self, queues: Sequence[str]) -> WaitingRun | None:
        return self._beginnings.offered(queues)

    async def find_waiting(self, queues: Sequence[str], *, limit: int) -> list[WaitingRun]:
        return await self._beginnings.waiting(queues, limit)

    async def begin_run(self, beginning: Beginning) -> Receipt:
        return await self._beginnings.begin(beginning)

    # EventLog, ChangeFeed and Definitions

    async def read_events(
        self, run_id: str, after: Position = Position(), *, limit: int = 1000
    ) -> list[RecordedEvent]:
        return await self._reading.events(run_id, after, limit)

    async def read_changes(self, after: str | None = None, *, limit: int = 1000) -> FeedPage:
        return await self._changes.after(after, limit)

    async def newest_change(self) -> str:
        return await self._changes.newest()

    async def get_definition(self, run_id: str) -> str | None:
        return await self._reading.definition(run_id)

    # Outbox and OutboxBatches

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
        return await self._outboxing.claim(
            Wanted(token, limit, seconds, per_origin, except_origins, only)
        )

    async def settle_delivery(self, delivery_id: str, token: str, outcome: Outcome) -> Delivery:
        return await self._settling.one(Settlement(delivery_id, token, outcome))

    async def settle_deliveries(
        self, settlements: Sequence[Settlement]
    ) -> list[Delivery | TenureError]:
        return await self._settling.many(settlements)

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
        return await self._settling.many_and_claim(
            settlements, Wanted(token, limit, seconds, per_origin, except_origins, only)
        )

    async def list_deliveries(
        self,
        *,
        state: DeliveryState | None = None,
        run_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Delivery]:
        return await self._outboxing.page(state, run_id, limit, cursor)

    async def get_delivery(self, delivery_id: str) -> Delivery:
        return await self._outboxing.get(delivery_id)

    async def requeue_delivery(self, delivery_id: str) -> Delivery:
        return await self._outboxing.requeue(delivery_id)

    # LogStore, LogListing and LogSizes

    async def append(
        self, run_id: str, fencing: Fencing, key: LogKey, offset: int, data: bytes
    ) -> int:
        return await self._logging.append(run_id, fencing, key, offset, data)

    async def read(
        self, run_id: str, key: LogKey, offset: int = 0, *, limit: int = 65536
    ) -> LogSlice:
        return await self._logging.read(run_id, key, offset, limit)

    async def list_logs(self, run_id: str) -> list[LogKey]:
        return await self._logging.streams(run_id)

    async def sizes_of(self, names: Collection[LogName]) -> dict[LogName, int]:
        return await self._logging.sizes(names)

    # WorkerRegistry and OwnerListing

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        await self._workers.heartbeat(worker, seconds)

    async def list_workers(self) -> list[WorkerInfo]:
        return await self._workers.present()

    async def list_owners(self) -> list[Ownership]:
        return await self._reading.owners()

    # StoreClock and CensusTaking

    async def store_time(self) -> datetime:
        return await self._reading.time()

    async def take_census(self, *, most: int = 10_000) -> Census:
        return await self._counting.census(most)

    # TokenStore

    async def add_token(self, token: Token) -> Token:
        return await self._tokens.add(token)

    async def list_tokens(self) -> list[Token]:
        return await self._tokens.all()

    async def revoke_token(self, token_id: str) -> Token | None:
        return await self._tokens.revoke(token_id)

    # Wakeups and WakeupCheck

    def listen(
        self, topics: Collection[str], heard: Callable[[], None]
    ) -> AbstractAsyncContextManager[None]:
        return self._listening.listen(topics, heard)

    async def hears_hints(self) -> bool | None:
        return await hears_itself(self._connections)

    # Retention, Readiness and Upkeep

    async def prune_runs(self, older_than: float, *, limit: int = 100) -> int:
        check_age(older_than)
        return await self._pruning.prune(older_than, limit)

    async def check_ready(self) -> None:
        await self._connections.check_schema()

    async def check_store(self) -> StoreReport:
        return await self._checking.check()

    async def migrate_store(self) -> StoreReport:
        """A schema newer than this version's is refused."""
        return await self._checking.migrate()
