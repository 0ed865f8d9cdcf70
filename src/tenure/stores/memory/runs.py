"""Records, history and definitions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tenure.model.codec import copied, storable
from tenure.model.decide import apply
from tenure.model.errors import StoreRejected, TenureError
from tenure.model.leases import check_repeated, create
from tenure.model.query import Page, RunFilter, bounded_limit, decode_cursor, encode_cursor
from tenure.model.snapshot import RunSnapshot, RunSummary, summarize
from tenure.model.update import NewRun, Position, Receipt, RecordedEvent, Update, Write, run_id_of
from tenure.stores.memory.state import MemoryState, StoredRun


class MemoryRuns:
    """``RunStateStore``, ``BatchUpdates``, ``RunVersions``, ``EventLog``, ``Definitions``."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def create_run(self, new: NewRun) -> Receipt:
        with self._state.lock:
            return self._create(new)

    async def update_run(self, update: Update) -> Receipt:
        with self._state.lock:
            return self._update(update)

    async def update_runs(self, writes: Sequence[Write]) -> list[Receipt | TenureError]:
        with self._state.lock:
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
        state = self._state
        run_id = new.snapshot.run_id
        existing = state.runs.get(run_id)
        if existing is not None:
            check_repeated(existing.snapshot, existing.update_id_of(1), new)
            return state.receipt(existing, 1)
        state.check_new(run_id, new.deliveries)
        root = state.retry_root(new.snapshot.retry_of)
        snapshot = create(storable(run_id, new), state.clock.now())
        stored = StoredRun(next(state.numbers), snapshot, new.definition)
        stored.retry_root = root
        if new.lease is not None:
            stored.lease_until = state.clock.until(new.lease.seconds)
            stored.claim_id = new.lease.claim_id
        state.runs[run_id] = state.unfinished[run_id] = stored
        state.write(stored, snapshot, new.update_id, new.events, new.deliveries)
        return state.receipt(stored, 1)

    def _update(self, update: Update) -> Receipt:
        state = self._state
        stored = state.find(update.run_id)
        applied = apply(
            stored.snapshot,
            storable(update.run_id, update),
            at=state.clock.now(),
            circumstances=state.circumstances(stored, update.base_version),
        )
        if applied.effect is not None:
            effect = applied.effect
            state.check_new(update.run_id, effect.deliveries)
            state.write(
                stored, applied.snapshot, update.update_id, effect.events, effect.deliveries
            )
        return state.receipt(stored, applied.version)

    async def get_run(self, run_id: str) -> RunSnapshot:
        with self._state.lock:
            return copied(self._state.seen(self._state.find(run_id)))

    async def versions_of(self, run_ids: Collection[str]) -> dict[str, int]:
        with self._state.lock:
            runs = self._state.runs
            return {each: runs[each].snapshot.version for each in run_ids if each in runs}

    async def list_runs(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        (before,) = decode_cursor("runs", cursor, 1) if cursor else (1 << 62,)
        limit = bounded_limit(limit)
        with self._state.lock:
            found: list[StoredRun] = []
            for stored in reversed(self._state.runs.values()):
                if stored.seq < before and where.matches(stored.snapshot):
                    found.append(stored)
                    if len(found) > limit:
                        break
            more = len(found) > limit
            page = found[:limit]
            return Page(
                items=tuple(copied(summarize(self._state.seen(stored))) for stored in page),
                cursor=encode_cursor("runs", page[-1].seq) if more else None,
            )

    async def read_events(
        self, run_id: str, after: Position = Position(), *, limit: int = 1000
    ) -> list[RecordedEvent]:
        with self._state.lock:
            rows = self._state.find(run_id).journal[max(after.version - 1, 0) :]
            events = [event for row in rows for event in row.events if event.position > after]
            return [copied(event) for event in events[: max(limit, 1)]]

    async def get_definition(self, run_id: str) -> str | None:
        with self._state.lock:
            return self._state.find(run_id).definition
