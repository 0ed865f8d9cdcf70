"""``tenure store``: migrate, check and prune a store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from tenure.cli.arguments import Duration, Whole
from tenure.cli.context import NoRunsYet, must_be_able, open_for_upkeep, open_to_read, settings_for
from tenure.cli.display import json_lines
from tenure.cli.display.text import (
    counted,
    dim,
    in_color,
    note,
    one_line,
    place_of,
    say,
    sign,
    to_type,
)
from tenure.cli.exit_codes import Exit
from tenure.cli.group import LazyGroup
from tenure.cli.options import json_option, store_option, verb
from tenure.config import Settings
from tenure.model.errors import NotSupported
from tenure.ports.store import Attended, Retention, RunStateStore, StoreReport, Upkeep
from tenure.runtime.options import MOST_PRUNED_PER_S
from tenure.system import SystemClock

if TYPE_CHECKING:
    from tenure.runtime.retention import Removable

_NO_SCHEMA = "has no schema that could be migrated"


def checked(store: RunStateStore) -> Upkeep:
    if isinstance(store, Upkeep):
        return store
    raise _unsupported(
        store, "cannot be checked as a whole: a damaged run is named when it is read"
    )


def migrated(store: RunStateStore) -> Upkeep:
    if isinstance(store, Upkeep):
        return store
    raise _unsupported(store, _NO_SCHEMA)


def has_no_schema(kind: str) -> NotSupported:
    return NotSupported(f"{kind} {_NO_SCHEMA}")


def pruned(store: RunStateStore) -> Retention:
    if isinstance(store, Retention):
        return store
    raise _unsupported(store, "cannot remove runs: it keeps all")


def _unsupported(store: RunStateStore, what: str) -> NotSupported:
    if isinstance(store, Attended):
        return NotSupported(
            f"this is not done through {store.attended_by}: name its own store on its machine"
        )
    return NotSupported(f"{type(store).__name__} {what}")


def report_lines(report: StoreReport, found: str = "is sound") -> Iterator[str]:
    """``found`` describes a store without problems."""
    status = "failed" if report.problems else "success"
    word = "has problems" if report.problems else found
    yield f"{in_color(status, sign(status))} {one_line(report.place)} {word}"
    schema = str(report.schema)
    if report.schema < report.newest_schema:
        schema += f", newest is {report.newest_schema}: {to_type('tenure store migrate')}"
    facts = {"schema": schema, "runs": report.runs, "size": _size(report.bytes_used)}
    for name, value in facts.items():
        if value is not None:
            yield f"  {dim(name.ljust(8))}{value}"
    for problem in report.problems:
        yield f"  {in_color('failed', one_line(problem))}"


def _size(number: int | None) -> str | None:
    if number is None:
        return None
    size = float(number)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return None


@verb("check", "tenure store check", "tenure store check --store sqlite:///runs.db --json")
@json_option
@store_option
def store_check(as_json: bool, store: str | None) -> int:
    """Look for damage and an outdated schema, changing nothing.

    May take a while on a large store. Exit code 1 if there are problems.
    """
    report = asyncio.run(_check(settings_for(store)))
    if as_json:
        say(json_lines.as_json(report))
    else:
        say("\n".join(report_lines(report)))
    return Exit.FAILED if report.problems else Exit.SUCCESS


async def _check(settings: Settings) -> StoreReport:
    async with open_to_read(settings) as store:
        return await checked(store).check_store()


@verb("migrate", "tenure store migrate --store sqlite:///runs.db")
@json_option
@store_option
def store_migrate(as_json: bool, store: str | None) -> None:
    """Bring the store's schema to this version of Tenure.

    A missing store is created; one that is newer than this Tenure is left unchanged.
    """
    report = asyncio.run(_migrate(settings_for(store)))
    if as_json:
        say(json_lines.as_json(report))
    else:
        say("\n".join(report_lines(report, f"is at schema {report.schema}")))


async def _migrate(settings: Settings) -> StoreReport:
    must_be_able(settings, Upkeep, has_no_schema)
    async with open_for_upkeep(settings, create=True, migrate=True) as store:
        return await migrated(store).migrate_store()


PROGRESS_INTERVAL_S = 5.0
"""Seconds between two progress messages."""


@verb(
    "prune",
    "tenure store prune --older-than 30d --dry-run",
    "tenure store prune --older-than 30d --yes --rate 1000",
)
@click.option(
    "--older-than",
    type=Duration(unit=True),
    required=True,
    metavar="30d",
    help="How long ago a run must have ended to be removed, by the store's clock.",
)
@click.option(
    "--rate",
    type=Whole(1, MOST_PRUNED_PER_S),
    metavar="N",
    help="Runs to remove in a second, at most; without it, the setting prune_rate.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask, also on a terminal.")
@json_option
@store_option
def store_prune(
    older_than: float,
    rate: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    store: str | None,
) -> None:
    """Remove runs that ended long ago.

    Says first how many that are, and on a terminal asks whether to go on.

    Each is removed whole: record, journal, output, settled callbacks. Runs that have not ended,
    and runs with a callback still to be sent, are kept. It works in small batches and no faster
    than --rate, so that other users of the store hardly notice. It may be stopped at any time; the
    next call removes the rest.
    """
    settings = settings_for(store)
    found = asyncio.run(_removable(settings, older_than))
    if dry_run and as_json:
        would = found.runs if found is not None else 0
        say(json_lines.as_json({"removed": 0, "would_remove": would, "older_than": older_than}))
    if dry_run and not as_json:
        say(_would_remove(found, place_of(settings.store)))
    if dry_run:
        return
    if found is not None and found.runs:
        note(_would_remove(found, place_of(settings.store)))
        if not yes and sys.stdin.isatty() and not click.confirm("Remove them?", err=True):
            note("nothing was removed")
            return
    count = asyncio.run(_prune(settings, older_than, rate or settings.prune_rate))
    if as_json:
        say(json_lines.as_json({"removed": count, "older_than": older_than}))
    else:
        say(f"{counted(count, 'run')} removed" if count else "no run ended that long ago")


def _would_remove(found: Removable | None, place: str) -> str:
    if found is None or not found.runs:
        return f"would remove no run of {place}: none ended that long ago"
    return (
        f"would remove {counted(found.runs, 'run')} of {place} that ended before "
        f"{found.ended_before:%Y-%m-%d %H:%M:%S} UTC, the oldest on {found.oldest_end:%Y-%m-%d}"
    )


async def _removable(settings: Settings, older_than: float) -> Removable | None:
    """``None`` if there are no runs yet."""
    from tenure.runtime.retention import count_removable

    with suppress(NoRunsYet):
        async with open_to_read(settings) as store:
            pruned(store)
            return await count_removable(store, older_than, SystemClock().now())
    return None


async def _prune(settings: Settings, older_than: float, rate: int) -> int:
    from tenure.runtime.options import PruneRate
    from tenure.runtime.retention import remove_old

    with suppress(NoRunsYet):
        async with open_for_upkeep(settings) as store:
            return await remove_old(pruned(store), older_than, PruneRate(rate), _progress())
    return 0


def _progress() -> Callable[[int], None]:
    """Progress now and then: a million runs take hours."""
    now = asyncio.get_running_loop().time
    told_at = now()

    def tell(count: int) -> None:
        nonlocal told_at
        if now() - told_at >= PROGRESS_INTERVAL_S:
            told_at = now()
            note(f"{counted(count, 'run')} removed so far")

    return tell


SECTIONS = {
    "Commands": {
        "migrate": "Bring the store's schema to this version of Tenure.",
        "check": "Look for damage and an outdated schema, changing nothing.",
        "prune": "Remove runs that ended long ago.",
    }
}


@click.group(
    "store",
    cls=LazyGroup,
    sections=SECTIONS,
    examples=("tenure store check", "tenure store prune --older-than 30d"),
)
def command() -> None:
    """Migrate, check and prune the store."""


for _each in (store_check, store_migrate, store_prune):
    command.add_command(_each)
