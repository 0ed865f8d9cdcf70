"""From settings to an open store or runner, as every command needs it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from getpass import getuser
from typing import TYPE_CHECKING, Protocol

from tenure.bootstrap import OpenStore, open_store
from tenure.cli.display.paint import note
from tenure.config import DEFAULT, Settings, data_folder, load_settings
from tenure.model.errors import RunNotFound, StoreUnavailable
from tenure.model.query import Page, RunFilter
from tenure.model.snapshot import RunSummary
from tenure.ports.recorder import Recorder

if TYPE_CHECKING:
    from tenure.runner import Runner

LATEST = "latest"


def settings_for(store: str | None) -> Settings:
    """``InvalidSettings``."""
    _show_warnings()
    return load_settings({"store": store})


@asynccontextmanager
async def reading(settings: Settings) -> AsyncIterator[OpenStore]:
    """The store itself: for commands that only read, or that look after it."""
    _make_room(settings)
    async with open_store(settings.store) as store:
        yield store


@asynccontextmanager
async def writing(
    settings: Settings, recorders: Sequence[Recorder] = (), *, tracking: bool = True
) -> AsyncIterator[Runner]:
    """For commands that write: opening it marks what a dead process left behind."""
    from tenure.runner import Runner
    from tenure.runtime.keeper import Timing

    if tracking:
        _make_room(settings)
    runner = Runner(
        settings.store,
        recorders=recorders,
        tracking=tracking,
        timing=Timing(
            lease_duration=settings.lease_duration,
            renew_interval=settings.renew_interval,
            control_interval=settings.control_interval,
        ),
        reconcile_interval=settings.reconcile_interval,
        progress_interval=settings.progress_interval,
        summary_bytes=settings.summary_bytes,
        log_cap=settings.log_cap,
    )
    async with runner:
        yield runner


class HasRuns(Protocol):
    """A store or a runner."""

    async def list_runs(
        self, where: RunFilter = ..., *, limit: int = ..., cursor: str | None = ...
    ) -> Page[RunSummary]: ...


async def meant_run(runs: HasRuns, word: str) -> str:
    """The run id behind what was typed: ``latest`` is the newest run (no id is that short)."""
    if word != LATEST:
        return word
    page = await runs.list_runs(RunFilter(), limit=1)
    if not page.items:
        raise RunNotFound(LATEST)
    return page.items[0].run_id


def this_user() -> str:
    """Who asks, as far as the machine knows."""
    try:
        return getuser()
    except (OSError, KeyError):  # a container with a number and no name for its user
        return "somebody"


def _make_room(settings: Settings) -> None:
    """The default store's folder comes into being with the first command; others are the user's
    own business."""
    folder = data_folder()
    if folder is None or settings.source_of("store") != DEFAULT:
        return
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(
            f"the folder for runs, {folder}, cannot be made: {error.strerror}; name another "
            "store, for example --store sqlite:///runs.db"
        ) from error


class _ToPeople(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.levelname.lower()}: {record.getMessage()}"
        if record.exc_info:
            text += f"\n{logging.Formatter().formatException(record.exc_info)}"
        note(text)


def _show_warnings() -> None:
    log = logging.getLogger("tenure")
    if not log.handlers:
        log.addHandler(_ToPeople(logging.WARNING))
        log.propagate = False
