"""Looking after a store."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from msgspec import Struct


class StoreReport(Struct, frozen=True, kw_only=True):
    place: str
    """Where it is, for people; never with a password."""
    schema: int
    newest_schema: int
    runs: int | None = None
    bytes_used: int | None = None
    problems: tuple[str, ...] = ()
    """Empty: nothing wrong was found."""


@runtime_checkable
class Upkeep(Protocol):
    async def check_store(self) -> StoreReport:
        """Look for damage and an outdated schema; changes nothing. May take a while."""
        ...

    async def migrate_store(self) -> StoreReport:
        """Bring the schema to this version's. ``StoreIncompatible`` if it is newer than that."""
        ...


@runtime_checkable
class Readiness(Protocol):
    async def check_ready(self) -> None:
        """Whether this version of Tenure can use the store as it stands now: ``StoreUnavailable``,
        or ``StoreIncompatible`` if somebody has migrated it meanwhile. Reads no run, costs next to
        nothing."""
        ...
