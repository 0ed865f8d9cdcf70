"""A run as one value, for stores that compare and swap whole values: key-value services, object
stores, a table with a version column.

All decisions are made here. The store keeps bytes, replaces them only if they are unchanged since
they were read, numbers the runs, and supplies the time. A document is rewritten with every update:
for runs of thousands of hosts keep rows instead, as ``stores.sqlite`` does with ``model.decide``.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from typing import Self

import msgspec
from msgspec.structs import replace

from tenure.model.codec import decode_versioned, encode_versioned, storable
from tenure.model.decide import Circumstances, apply
from tenure.model.leases import check_repeated, create, present
from tenure.model.query import Page, RunFilter, bounded_limit, decode_cursor, encode_cursor
from tenure.model.snapshot import RunSnapshot, RunSummary, summarize
from tenure.model.update import NewRun, Receipt, Update, receipt
from tenure.stores.lease_clock import Instant, LeaseEnd, shown

_NEWEST = 1 << 62


class RunDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run, its lease and its definition; immutable.

    ``Instant`` is the store's clock: ``LeaseClock(SystemClock()).read()`` if all its users share
    one machine. A service of several machines must supply the time itself, or a lease taken on one
    machine would look expired on the others: ``Instant(now, BootTime("service", nanoseconds))``.
    """

    snapshot: RunSnapshot
    number: int
    """Place in the order of creation: increasing and never reused."""
    update_ids: tuple[str, ...]
    """``update_ids[v - 1]`` made version ``v``; identifies a repeated update."""
    lease_until: LeaseEnd | None = None
    definition: str | None = None

    @classmethod
    def born(cls, new: NewRun, instant: Instant, number: int) -> Self:
        """For ``create_run``, if the id is free; answer with ``receipt(1)``."""
        new = storable(new.snapshot.run_id, new)
        return cls(
            snapshot=create(new, instant.now),
            number=number,
            update_ids=(new.update_id,),
            lease_until=instant.until(new.lease.seconds) if new.lease else None,
            definition=new.definition,
        )

    def created_again(self, new: NewRun) -> Receipt:
        """For ``create_run``, if the id is taken: the first answer again, or ``RunExists``."""
        check_repeated(self.snapshot, self.update_ids[0], new)
        return self.receipt(1)

    def updated(self, update: Update, instant: Instant) -> tuple[Self, Receipt]:
        """For ``update_run``. If the same document comes back, there is nothing to write."""
        applied = apply(
            self.snapshot,
            storable(update.run_id, update),
            at=instant.now,
            circumstances=Circumstances(
                lease_live=self._is_live(instant),
                applied_id=self._applied_id(update.base_version),
                lease_expires_at=shown(self.lease_until),
            ),
        )
        if applied.effect is None:
            return self, self.receipt(applied.version)
        after = replace(
            self,
            snapshot=applied.snapshot,
            update_ids=(*self.update_ids, update.update_id),
            lease_until=self.lease_until if applied.snapshot.owner_id is not None else None,
        )
        return after, after.receipt(applied.version)

    def seen(self, instant: Instant) -> RunSnapshot:
        """For ``get_run``: the record, marked if its owner's lease has expired."""
        return present(
            self.snapshot, lease_live=self._is_live(instant), expires_at=shown(self.lease_until)
        )

    def receipt(self, version: int) -> Receipt:
        return receipt(self.snapshot, version, shown(self.lease_until))

    def encode(self) -> bytes:
        return encode_versioned(self)

    @staticmethod
    def decode(data: bytes) -> RunDocument:
        """``StoreIncompatible`` for data of a newer Tenure or of another program."""
        return decode_versioned(_documents, data)

    def _is_live(self, instant: Instant) -> bool:
        return self.snapshot.owner_id is not None and instant.is_live(self.lease_until)

    def _applied_id(self, base_version: int | None) -> str | None:
        if base_version is None or not 0 <= base_version < len(self.update_ids):
            return None
        return self.update_ids[base_version]


_documents = msgspec.json.Decoder(RunDocument)


def newest_page(
    documents: Iterable[RunDocument],
    where: RunFilter,
    *,
    limit: int,
    cursor: str | None,
    instant: Instant,
) -> Page[RunSummary]:
    """For ``list_runs`` where the service cannot search: filters and sorts all documents."""
    (before,) = decode_cursor("runs", cursor, 1) if cursor else (_NEWEST,)
    limit = bounded_limit(limit)
    matching = (one for one in documents if one.number < before and where.matches(one.snapshot))
    found = nlargest(limit + 1, matching, key=lambda one: one.number)
    page = found[:limit]
    return Page(
        items=tuple(summarize(one.seen(instant)) for one in page),
        cursor=encode_cursor("runs", page[-1].number) if len(found) > limit else None,
    )
