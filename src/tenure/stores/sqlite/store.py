"""All store protocols on one database file, for the processes of one machine.

Three threads, each with its own connection: one reads, one writes, one handles output; the latter
two are started on first use. A call is one hop into its thread and one transaction there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Self

from tenure.model.errors import TenureError
from tenure.model.leases import ClaimedRun, ClaimRequest, Lease, LeaseToken, Purpose, Renewal
from tenure.model.outbox import Delivery, Outcome, Settlement
from tenure.model.query import (
    Ownership,
    Page,
    RunFilter,
    bounded_limit,
    check_age,
    decode_cursor,
    encode_cursor,
)
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
)
from tenure.ports.callbacks import DeliveryClaim
from tenure.ports.environment import Clock
from tenure.ports.leases import WorkerInfo
from tenure.ports.store import Census, LogKey, LogName, LogSlice, StoreReport
from tenure.stores.lease_clock import LeaseClock
from tenure.stores.sqlite.admin import Pruner, Registry, Retention, check, facts
from tenure.stores.sqlite.connection import BUSY_TIMEOUT_S, DatabaseFile, DatabaseThread, migrate
from tenure.stores.sqlite.leases import ClaimOrder, Leases
from tenure.stores.sqlite.logs import LogFiles, OutputLogs, streams_of
from tenure.stores.sqlite.outbox import Outbox
from tenure.stores.sqlite.read import Reader
from tenure.stores.sqlite.rows import Statements
from tenure.stores.sqlite.write import Writer
from tenure.system import SystemClock

_NEWEST = 1 << 62


class SQLiteStore:
    """``RunStateStore``, ``BatchUpdates``, ``RunVersions``, ``LeaseStore``, ``EventLog``,
    ``ChangeFeed``, ``Definitions``, ``Outbox``, ``OutboxBatches``, ``LogStore``, ``LogListing``,
    ``LogSizes``, ``WorkerRegistry``, ``OwnerListing``, ``StoreClock``, ``CensusTaking``,
    ``TokenStore``, ``KeptApart``, ``Retention``, ``ReadinessCheck`` and ``Upkeep``."""

    durable = True

    def __init__(
        self, path: str | Path, clock: Clock | None = None, *, busy_timeout_s: float | None = None
    ) -> None:
        """Open, and create or migrate if needed. Blocks for a moment; ``open`` does not.
        ``busy_timeout_s``, a minute by default, limits the wait for the lock of another process."""
        self._file = file = DatabaseFile(path)
        self.path = file.path
        self._clock = LeaseClock(clock or SystemClock())
        self._files = LogFiles(Path(f"{self.path}.logs"))
        timeout_s = BUSY_TIMEOUT_S if busy_timeout_s is None else busy_timeout_s
        self._reader = DatabaseThread(file, "reader", timeout_s, reads=True)
        self._writer = DatabaseThread(file, "writer", timeout_s)
        self._output = DatabaseThread(file, "output", timeout_s)
        self._pruning = Retention(
            self._reader, lambda: self._reading, self._writer, lambda: self._pruner
        )
        self._reader.connection  # noqa: B018  opened now, the others on first use

    # Used in the writer's thread only.

    @cached_property
    def _writing(self) -> Writer:
        return Writer(self._writer.connection, self._clock)

    @cached_property
    def _leasing(self) -> Leases:
        return Leases(self._writing)

    @cached_property
    def _outbox(self) -> Outbox:
        return Outbox(self._writer.connection, self._clock, self._writing.loading.recent)

    @cached_property
    def _registry(self) -> Registry:
        return Registry(self._writer.connection, self._clock)

    @cached_property
    def _pruner(self) -> Pruner:
        return Pruner(self._writing, self._files)

    # Used in the reader's thread only.

    @cached_property
    def _reading(self) -> Reader:
        return Reader(self._reader.connection, self._clock)

    @cached_property
    def _lists(self) -> ClaimOrder:
        return ClaimOrder(Statements(self._reader.connection), self._reading)

    @cached_property
    def _deliveries(self) -> Outbox:
        return Outbox(self._reader.connection, self._clock)

    # Used in the output's thread only.

    @cached_property
    def _logging(self) -> OutputLogs:
        return OutputLogs(self._output.connection, self._files)

    @classmethod
    async def open(cls, path: str | Path, clock: Clock | None = None) -> Self:
        """As the constructor, without blocking the event loop."""
        return await asyncio.to_thread(cls, path, clock)

    async def close(self) -> None:
        """Finish pending calls, then close the file. May be called twice."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        for thread in (self._writer, self._output, self._reader):
            thread.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exit_details: object) -> None:
        await self.close()

    # RunStateStore, BatchUpdates and RunVersions.

    async def create_run(self, new: NewRun) -> Receipt:
        return await self._writer.run(lambda: self._writing.one(new))

    async def update_run(self, update: Update) -> Receipt:
        return await self._writer.run(lambda: self._writing.one(update))

    async def update_runs(self, writes: Sequence[Write]) -> list[Receipt | TenureError]:
        return await self._writer.run(lambda: self._writing.many(writes))

    async def get_run(self, run_id: str) -> RunSnapshot:
        return await self._reader.run(lambda: self._reading.snapshot(run_id))

    async def versions_of(self, run_ids: Collection[str]) -> dict[str, int]:
        return await self._reader.run(lambda: self._reading.versions(run_ids))

    async def list_runs(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        (before,) = decode_cursor("runs", cursor, 1) if cursor else (_NEWEST,)
        limit = bounded_limit(limit)
        found = await self._reader.run(lambda: self._reading.page(where, before, limit + 1))
        return Page(
            items=tuple(run for _, run in found[:limit]),
            cursor=encode_cursor("runs", found[limit - 1][0]) if len(found) > limit else None,
        )

    # LeaseStore.

    async def list_runnable(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        after = decode_cursor("runnable", cursor, 3) if cursor else None
        limit = bounded_limit(limit)
        found = await self._reader.run(
            lambda: self._lists.runnable(where, after, limit + 1, self._clock.read())
        )
        return Page(
            items=tuple(run for _, run in found[:limit]),
            cursor=encode_cursor("runnable", *found[limit - 1][0]) if len(found) > limit else None,
        )

    async def claim_run(
        self, run_id: str, request: LeaseRequest, purpose: Purpose = Purpose.EXECUTE
    ) -> ClaimedRun:
        asked_at = monotonic()
        return await self._writer.run(
            lambda: self._leasing.claim_one(run_id, request, purpose, asked_at)
        )

    async def claim_runs(self, request: ClaimRequest) -> list[ClaimedRun]:
        asked_at = monotonic()
        return await self._writer.run(lambda: self._leasing.claim_many(request, asked_at))

    async def renew_leases(self, leases: Sequence[Lease], seconds: float) -> list[Renewal]:
        return await self._writer.run(lambda: self._leasing.renew(leases, seconds))

    async def release_lease(self, run_id: str, fencing: Fencing, update_id: str) -> None:
        await self._writer.run(lambda: self._leasing.release(run_id, fencing, update_id))

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[Self]:
        """This store itself: its threads do not depend on the event loop, and another connection
        would have to wait for the writer's lock."""
        yield self

    # EventLog, ChangeFeed and Definitions.

    async def read_events(
        self, run_id: str, after: Position = Position(), *, limit: int = 1000
    ) -> list[RecordedEvent]:
        return await self._reader.run(lambda: self._reading.events(run_id, after, max(limit, 1)))

    async def read_changes(self, after: str | None = None, *, limit: int = 1000) -> FeedPage:
        (number,) = decode_cursor("changes", after, 1) if after else (0,)
        return await self._reader.run(
            lambda: self._reading.changes_after(number, bounded_limit(limit))
        )

    async def newest_change(self) -> str:
        return await self._reader.run(lambda: self._reading.newest_change())

    async def get_definition(self, run_id: str) -> str | None:
        return await self._reader.run(lambda: self._reading.definition(run_id))

    # Outbox and OutboxBatches.

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
        claim = DeliveryClaim(token, limit, seconds, per_origin, except_origins, only)
        return await self._writer.run(lambda: self._outbox.claim(claim))

    async def settle_delivery(self, delivery_id: str, token: str, outcome: Outcome) -> Delivery:
        settlement = Settlement(delivery_id, token, outcome)
        return await self._writer.run(lambda: self._outbox.settle_one(settlement))

    async def settle_deliveries(
        self, settlements: Sequence[Settlement]
    ) -> list[Delivery | TenureError]:
        return await self._writer.run(lambda: self._outbox.settle(settlements))

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
        claim = DeliveryClaim(token, limit, seconds, per_origin, except_origins, only)
        return await self._writer.run(lambda: self._outbox.settle_and_claim(settlements, claim))

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
        found = await self._reader.run(
            lambda: self._deliveries.page(state, run_id, before, limit + 1)
        )
        return Page(
            items=tuple(delivery for _, delivery in found[:limit]),
            cursor=encode_cursor("deliveries", found[limit - 1][0]) if len(found) > limit else None,
        )

    async def get_delivery(self, delivery_id: str) -> Delivery:
        return await self._reader.run(lambda: self._deliveries.get(delivery_id))

    async def requeue_delivery(self, delivery_id: str) -> Delivery:
        return await self._writer.run(lambda: self._outbox.requeue(delivery_id))

    # LogStore, LogListing and LogSizes.

    async def append(
        self, run_id: str, fencing: Fencing, key: LogKey, offset: int, data: bytes
    ) -> int:
        return await self._output.run(
            lambda: self._logging.append(run_id, fencing, key, offset, data)
        )

    async def read(
        self, run_id: str, key: LogKey, offset: int = 0, *, limit: int = 65536
    ) -> LogSlice:
        return await self._output.run(lambda: self._logging.read(run_id, key, offset, limit))

    async def list_logs(self, run_id: str) -> list[LogKey]:
        output = await self._output.run(lambda: self._logging.find(run_id))
        found = await asyncio.to_thread(streams_of, output)
        await self._output.run(lambda: self._logging.find(run_id))  # not pruned meanwhile
        return found

    async def sizes_of(self, names: Collection[LogName]) -> dict[LogName, int]:
        return await self._output.run(lambda: self._logging.sizes(names))

    # WorkerRegistry and OwnerListing.

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        await self._writer.run(lambda: self._registry.heartbeat(worker, seconds))

    async def list_workers(self) -> list[WorkerInfo]:
        return await self._reader.run(lambda: self._reading.workers())

    async def list_owners(self) -> list[Ownership]:
        return await self._reader.run(lambda: self._reading.owners())

    # TokenStore.

    async def add_token(self, token: Token) -> Token:
        return await self._writer.run(lambda: self._registry.add_token(token))

    async def add_first_token(self, token: Token) -> bool:
        return await self._writer.run(lambda: self._registry.add_first_token(token))

    async def list_tokens(self) -> list[Token]:
        return await self._reader.run(lambda: self._reading.tokens())

    async def revoke_token(self, token_id: str) -> Token | None:
        return await self._writer.run(lambda: self._registry.revoke_token(token_id))

    async def lease_tokens(self, run_ids: Collection[str]) -> dict[str, LeaseToken]:
        return await self._reader.run(lambda: self._reading.lease_tokens(run_ids))

    async def token_secret(self) -> bytes:
        return await self._reader.run(lambda: self._reading.token_secret())

    # StoreClock, CensusTaking, Retention, ReadinessCheck and Upkeep.

    async def store_time(self) -> datetime:
        """The machine's."""
        return await self._reader.run(lambda: self._reading.time())

    async def take_census(self, *, most: int = 10_000) -> Census:
        return await self._reader.run(lambda: self._reading.census(most))

    async def prune_runs(self, older_than: float, *, limit: int = 100) -> int:
        check_age(older_than)
        return await self._pruning.prune(older_than, limit)

    async def check_ready(self) -> None:
        await self._reader.run(lambda: None)  # every call checks file and schema

    async def check_store(self) -> StoreReport:
        """On a connection of its own, so that other calls do not wait."""
        self._file.check()
        return await asyncio.to_thread(check, self.path, self._files)

    async def migrate_store(self) -> StoreReport:
        """Done when opening; ``StoreIncompatible`` if a newer Tenure has migrated it since."""
        await self._writer.run(lambda: migrate(self._writer.connection, self.path))
        return await asyncio.to_thread(facts, self.path, self._files)
