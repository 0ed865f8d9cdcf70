"""Bring your own store: the whole of what Tenure asks for, over any key-value service.

All a service must offer is ``get``, a sequence, and "replace, if nobody else has meanwhile" (etcd,
Consul, DynamoDB, Redis with WATCH, an object store with If-Match, a SQL row with a version column).
What a write *does* is decided by ``RunDocument``: the store reads, asks, replaces, and starts over
when somebody was faster.

``tests/examples/test_custom_store.py`` holds it to the shipped contract. Run me:

    python examples/custom_store.py
"""

from __future__ import annotations

import asyncio
from itertools import count

from tenure.model.compose import cancel, new_run
from tenure.model.errors import RunNotFound
from tenure.model.query import Page, RunFilter
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.model.status import RunStatus
from tenure.model.update import LeaseRequest, NewRun, Receipt, Update
from tenure.ports.environment import Clock
from tenure.stores.document import RunDocument, newest_page
from tenure.stores.lease_clock import LeaseClock
from tenure.system import SystemClock


class KeyValueService:
    """Stands for yours. Values are bytes, so nothing in it is ever shared with a caller."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._sequence = count(1)

    async def get(self, key: str) -> bytes | None:
        return self._values.get(key)

    async def values(self) -> list[bytes]:
        return list(self._values.values())

    async def next_number(self) -> int:
        return next(self._sequence)

    async def replace(self, key: str, old: bytes | None, new: bytes) -> bool:
        """Atomically: only if the value still is ``old`` (``None``: only if there is none)."""
        if self._values.get(key) != old:
            return False
        self._values[key] = new
        return True


class DocumentStore:
    """``RunStateStore``. Add ``read_events`` or ``get_definition`` and Tenure finds them too."""

    durable = False  # say True if your service keeps what it has acknowledged

    def __init__(self, service: KeyValueService, clock: Clock | None = None) -> None:
        self._service = service
        self._clock = LeaseClock(clock or SystemClock())  # several machines: the service's own

    async def create_run(self, new: NewRun) -> Receipt:
        run_id = new.snapshot.run_id
        if await self._service.get(run_id) is None:
            number = await self._service.next_number()
            born = RunDocument.born(new, self._clock.read(), number)
            if await self._service.replace(run_id, None, born.encode()):
                return born.receipt(1)
        _, document = await self._read(run_id)
        return document.created_again(new)

    async def update_run(self, update: Update) -> Receipt:
        while True:
            stored, document = await self._read(update.run_id)
            after, receipt = document.updated(update, self._clock.read())
            if after is document:
                return receipt
            if await self._service.replace(update.run_id, stored, after.encode()):
                return receipt

    async def get_run(self, run_id: str) -> RunSnapshot:
        _, document = await self._read(run_id)
        return document.seen(self._clock.read())

    async def list_runs(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        every = map(RunDocument.decode, await self._service.values())
        return newest_page(every, where, limit=limit, cursor=cursor, instant=self._clock.read())

    async def _read(self, run_id: str) -> tuple[bytes, RunDocument]:
        stored = await self._service.get(run_id)
        if stored is None:
            raise RunNotFound(run_id)
        return stored, RunDocument.decode(stored)


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
