"""The lives that the contracts let runs lead fill every field of a record, down to each host: a new
field that nobody puts something into would be one that a store may forget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields

from tenure.model.snapshot import RunSnapshot
from tenure.stores.memory import InMemoryStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts import ManualTime
from tenure.testing.contracts.followed import FollowedOwnership, FollowedRun
from tenure.testing.contracts.lease_records import OWNED_LIVES
from tenure.testing.contracts.run_lives import LIVES

MADE_BY_CLAIMS = {"RunSnapshot.takeovers", "RunSnapshot.takeovers_without_progress"}


class Timed(ManualTime):
    def __init__(self) -> None:
        self._manual = ManualClock()
        self.store = InMemoryStore(self._manual)


async def test_lives_without_claims_fill_all_that_claims_do_not() -> None:
    seen: list[RunSnapshot] = []
    for life in LIVES.values():
        run = FollowedRun(InMemoryStore())
        await life(run)
        seen += run.seen
    assert _never_filled(seen) == MADE_BY_CLAIMS


async def test_lives_with_claims_fill_the_rest() -> None:
    seen: list[RunSnapshot] = []
    for life in OWNED_LIVES.values():
        timed = Timed()
        run = FollowedOwnership(timed.store, timed)
        await life(run)
        seen += run.seen
    assert not _never_filled(seen) & MADE_BY_CLAIMS


def _never_filled(seen: Iterable[RunSnapshot]) -> set[str]:
    """Fields at their default in all values of their kind. Of a kind that is not there at all, the
    field that would hold it is."""
    every: set[str] = set()
    filled: set[str] = set()
    for value in _structs(seen):
        kind = type(value).__name__
        for field in fields(value):
            every.add(f"{kind}.{field.name}")
            if getattr(value, field.name) != _default(field):
                filled.add(f"{kind}.{field.name}")
    return every - filled


def _structs(value: Any) -> Iterator[Struct]:
    """All of them in a tree."""
    inside: Iterable[Any] = ()
    if isinstance(value, Struct):
        yield value
        inside = (getattr(value, name) for name in value.__struct_fields__)
    elif isinstance(value, dict):
        inside = value.values()
    elif isinstance(value, list | tuple):
        inside = value
    for each in inside:
        yield from _structs(each)


def _default(field: FieldInfo) -> Any:
    """Of one that must be given: what no value equals."""
    if field.default_factory is not NODEFAULT:
        return field.default_factory()
    return field.default
