"""Stores that can be looked after, and a clear word for those that cannot."""

from __future__ import annotations

from collections.abc import Iterator

from tenure.cli.display.paint import dim, in_color, sign
from tenure.cli.display.text import one_line
from tenure.model.errors import NotSupported
from tenure.ports.attended import Attended
from tenure.ports.retention import Retention
from tenure.ports.run_store import RunStateStore
from tenure.ports.upkeep import StoreReport, Upkeep

_NO_SCHEMA = "has no schema that could be migrated"


def checked(store: RunStateStore) -> Upkeep:
    if isinstance(store, Upkeep):
        return store
    raise _lacking(store, "cannot be checked as a whole: a damaged run is named when it is read")


def migrated(store: RunStateStore) -> Upkeep:
    if isinstance(store, Upkeep):
        return store
    raise _lacking(store, _NO_SCHEMA)


def has_no_schema(kind: str) -> NotSupported:
    return NotSupported(f"{kind} {_NO_SCHEMA}")


def pruned(store: RunStateStore) -> Retention:
    if isinstance(store, Retention):
        return store
    raise _lacking(store, "cannot remove runs: it keeps all")


def _lacking(store: RunStateStore, what: str) -> NotSupported:
    if isinstance(store, Attended):
        return NotSupported(
            f"this is not done through {store.attended_by}: name its own store on its machine"
        )
    return NotSupported(f"{type(store).__name__} {what}")


def report_lines(report: StoreReport, found: str = "is sound") -> Iterator[str]:
    """``found``: what is said of a store without problems."""
    status = "failed" if report.problems else "success"
    word = "has problems" if report.problems else found
    yield f"{in_color(status, sign(status))} {one_line(report.place)} {word}"
    schema = str(report.schema)
    if report.schema < report.newest_schema:
        schema += f", newest is {report.newest_schema}: tenure store migrate"
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
