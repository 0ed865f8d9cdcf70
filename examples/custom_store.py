"""Bring your own store: the whole of what Tenure asks for, over any key-value service.

All a service must offer is ``get`` and "replace, if nobody else has meanwhile" (etcd, Consul,
DynamoDB, Redis with WATCH, an object store with If-Match, a SQL row with a version column). One
document per run holds everything. What a write *does* is decided by ``tenure.model``: the store
reads, asks, replaces, and starts over when somebody was faster.

``tests/examples/test_custom_store.py`` holds it to the shipped contract. Run me:

    python examples/custom_store.py
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from itertools import count

import msgspec

from tenure.model.apply import apply
from tenure.model.codec import storable
from tenure.model.compose import cancel, new_run
from tenure.model.errors import RunNotFound
from tenure.model.judge import Circumstances
from tenure.model.leasing import check_repeated, create, present
from tenure.model.query import Page, RunFilter, bounded_limit, decode_cursor, encode_cursor
from tenure.model.snapshot import RunSnapshot, RunSummary, summarize
from tenure.model.status import RunStatus
from tenure.model.update import LeaseRequest, NewRun, Receipt, Update, receipt
from tenure.system import SystemClock


class KeyValueService:
    """Stands for yours. Values are bytes, so nothing in it is ever shared with a caller."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    async def get(self, key: str) -> bytes | None:
        return self._values.get(key)

    async def keys(self) -> list[str]:
        return list(self._values)

    async def replace(self, key: str, old: bytes | None, new: bytes) -> bool:
        """Atomically: only if the value still is ``old`` (``None``: only if there is none)."""
        if self._values.get(key) != old:
            return False
        self._values[key] = new
        return True


class Document(msgspec.Struct, frozen=True):
    """One run. ``update_ids[v - 1]`` made version ``v``: how a repetition is recognised."""

    run: RunSnapshot
    number: int
    update_ids: list[str]
    lease_until: datetime | None = None

    def live_until(self, now: datetime) -> datetime | None:
        held = self.run.owner_id is not None and self.lease_until and self.lease_until > now
        return self.lease_until if held else None

    def applied_id(self, base: int | None) -> str | None:
        return self.update_ids[base] if base is not None and 0 <= base < self.run.version else None

    def receipt(self, version: int, now: datetime) -> Receipt:
        return receipt(self.run, version, self.live_until(now))

    def seen(self, now: datetime) -> RunSnapshot:
        until = self.live_until(now)
        return present(self.run, lease_live=until is not None, expires_at=until)


class DocumentStore:
    """``RunStateStore``. Add ``read_events`` or ``get_definition`` and Tenure finds them too."""

    durable = False  # say True if your service keeps what it has acknowledged

    def __init__(self, service: KeyValueService) -> None:
        self._service = service
        self._clock = SystemClock()
        self._numbers = count(1)  # your service's own sequence, if several processes create

    async def create_run(self, new: NewRun) -> Receipt:
        run_id, now = new.snapshot.run_id, self._clock.now()
        if await self._service.get(run_id) is None:
            until = now + timedelta(seconds=new.lease.seconds) if new.lease else None
            run = create(storable(run_id, new), now)
            born = Document(run, next(self._numbers), [new.update_id], until)
            if await self._service.replace(run_id, None, msgspec.json.encode(born)):
                return born.receipt(1, now)
        _, there = await self._read(run_id)
        check_repeated(there.run, there.update_ids[0], new)
        return there.receipt(1, now)

    async def update_run(self, update: Update) -> Receipt:
        while True:
            stored, document = await self._read(update.run_id)
            now = self._clock.now()
            until = document.live_until(now)
            applied = apply(
                document.run,
                storable(update.run_id, update),
                at=now,
                circumstances=Circumstances(
                    lease_live=until is not None,
                    applied_id=document.applied_id(update.base_version),
                    lease_expires_at=until,
                ),
            )
            if applied.effect is None:
                return document.receipt(applied.version, now)
            after = Document(
                applied.snapshot,
                document.number,
                [*document.update_ids, update.update_id],
                document.lease_until,
            )
            if await self._service.replace(update.run_id, stored, msgspec.json.encode(after)):
                return after.receipt(applied.version, now)

    async def get_run(self, run_id: str) -> RunSnapshot:
        _, document = await self._read(run_id)
        return document.seen(self._clock.now())

    async def list_runs(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        (before,) = decode_cursor("runs", cursor, 1) if cursor else (1 << 62,)
        limit, now = bounded_limit(limit), self._clock.now()
        documents = [(await self._read(key))[1] for key in await self._service.keys()]
        found = [each for each in documents if each.number < before and where.matches(each.run)]
        found.sort(key=lambda each: each.number, reverse=True)
        page = found[:limit]
        return Page(
            items=tuple(summarize(each.seen(now)) for each in page),
            cursor=encode_cursor("runs", page[-1].number) if len(found) > limit else None,
        )

    async def _read(self, run_id: str) -> tuple[bytes, Document]:
        stored = await self._service.get(run_id)
        if stored is None:
            raise RunNotFound(run_id)
        return stored, msgspec.json.decode(stored, type=Document)


async def main() -> None:
    store = DocumentStore(KeyValueService())
    ids = (f"callback-{number}" for number in count())

    queued = RunSnapshot(run_id="nightly-backup-1", workflow_name="backup")
    await store.create_run(new_run(queued, "create-1", ids))
    await store.update_run(cancel(queued, "cancel-1", ids, reason="not tonight"))

    owner = LeaseRequest(owner_id="this-process", seconds=60, claim_id="claim-1")
    running = RunSnapshot(run_id="deploy-1.4", workflow_name="deploy", status=RunStatus.RUNNING)
    await store.create_run(new_run(running, "create-2", ids, lease=owner))
    await store.update_run(cancel(running, "cancel-2", ids, reason="wrong release"))
    asked = await store.get_run("deploy-1.4")
    print(f"{asked.run_id} is owned, so it was asked to stop: {asked.cancel_reason!r}")

    for item in (await store.list_runs()).items:
        print(f"{item.run_id:<18} {item.status:<9} version {item.version}")


if __name__ == "__main__":
    asyncio.run(main())
