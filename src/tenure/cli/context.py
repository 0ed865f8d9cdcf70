"""From settings to an open store, runner or worker, as the commands need them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from getpass import getuser
from typing import TYPE_CHECKING, Any, Protocol

from tenure.bootstrap import OpenStore, default_sender, kind_of_store, not_there_yet, open_store
from tenure.cli.display.text import note, place_of, remember_store
from tenure.cli.logging import show_warnings
from tenure.config import DEFAULT, JSON_LOGS, PREFIX, Settings, data_folder, load_settings
from tenure.model.errors import InvalidRunId, RunNotFound, StoreError, StoreUnavailable
from tenure.model.ids import check_run_id
from tenure.model.query import Page, RunFilter
from tenure.model.snapshot import RunSummary
from tenure.ports.execution import Recorder
from tenure.ports.store import Attended, RunStateStore, Upkeep
from tenure.system import new_owner_id, new_update_id, presence
from tenure.wire.addresses import shown_address
from tenure.wire.callbacks import MASK

if TYPE_CHECKING:
    from tenure.runner import Runner
    from tenure.runtime.callbacks import Callbacks
    from tenure.runtime.options import CallbackSettings, RetentionPolicy
    from tenure.worker import Worker

LATEST = "latest"
BUSY_TIMEOUT_S = 10.0
"""Seconds to wait for a SQLite file that another process has locked, before the command says so."""


class NoSuchStore(StoreError):
    """The named store does not exist. Creating it would hide a typing mistake."""


class NoRunsYet(StoreError):
    """The default store is created by the first run."""


def settings_for(
    store: str | None, broker: str | None = None, listen: str | None = None
) -> Settings:
    """Settings with the options of the command line. ``InvalidSettings``."""
    show_warnings()
    for name, url in (("store", store), ("broker", broker)):
        if url and MASK in shown_address(url):
            note(
                f"notice: every user of this machine can read what stands in --{name}, a password "
                f"too; put the URL in {PREFIX}{name.upper()}"
            )
    remember_store(store)
    settings = load_settings({"store": store, "broker": broker, "listen": listen})
    if settings.log_format == JSON_LOGS:
        show_warnings(as_json=True)
    return settings


@asynccontextmanager
async def open_to_read(settings: Settings) -> AsyncIterator[OpenStore]:
    """The store, for commands that only read; nothing is created. ``NoSuchStore``,
    ``NoRunsYet``."""
    must_be_there(settings)
    async with open_store(settings.store, patience=BUSY_TIMEOUT_S) as store:
        yield store


@asynccontextmanager
async def open_for_upkeep(
    settings: Settings, *, create: bool = False, migrate: bool = False
) -> AsyncIterator[OpenStore]:
    """The store, for commands that write to it and execute nothing. Runs of dead processes are
    marked first, as by every command that writes. ``create`` makes a missing store, otherwise
    ``NoSuchStore``, ``NoRunsYet``. ``migrate`` brings it to this version's schema."""
    if create:
        make_room(settings)
    else:
        must_be_there(settings)
    async with open_store(settings.store, patience=BUSY_TIMEOUT_S) as store:
        if migrate and isinstance(store, Upkeep):
            await store.migrate_store()
        await _mark_abandoned(store, settings)
        yield store


async def _mark_abandoned(store: RunStateStore, settings: Settings) -> None:
    """As opening a runner does, but callbacks are sent only if this made any: the command may send
    some itself."""
    from tenure.runtime.reconciler import Reconciler

    if isinstance(store, Attended):
        return
    made: list[tuple[Any, ...]] = []
    reconciler = Reconciler(
        store, new_owner_id(), new_update_id, presence, told=lambda *of: made.append(of)
    )
    await reconciler.mark_at_start()
    if made:
        async with open_to_send(store, settings) as callbacks:
            for of in made:
                callbacks.told(*of)


def must_be_there(settings: Settings) -> None:
    missing = not_there_yet(settings.store)
    if missing is None:
        return
    place = place_of(settings.store)
    source = settings.source_of("store")
    if source == DEFAULT:
        raise NoRunsYet(f"there are no runs yet; the first one creates {place}")
    if not missing.parent.is_dir():
        place = f"{place} (nor the folder {missing.parent})"
    raise NoSuchStore(f"there is no store at {place}, as {source} has it")


@asynccontextmanager
async def open_to_run(
    settings: Settings, recorders: Sequence[Recorder] = (), *, tracking: bool = True
) -> AsyncIterator[Runner]:
    """A runner, for commands that execute: opening it marks runs of dead processes."""
    from tenure.runner import Runner

    if tracking:
        make_room(settings)
    runner = Runner(
        settings.store, recorders=recorders, tracking=tracking, **_for_execution(settings)
    )
    async with runner:
        yield runner


def new_runner(settings: Settings, store: RunStateStore) -> Runner:
    """A runner with these settings; the store is not closed with it."""
    from tenure.runner import Runner

    return Runner(store, **_for_execution(settings))


def new_worker(
    settings: Settings,
    store: RunStateStore | None = None,
    *,
    queues: Sequence[str],
    concurrency: int,
    secrets: Mapping[str, str],
    name: str | None,
    recorders: Sequence[Recorder],
) -> Worker:
    """A worker with these settings; a given ``store`` is not closed with it."""
    from tenure.worker import Pace, Worker

    make_room(settings)
    return Worker(
        store or settings.store,
        queues=queues,
        pace=Pace(
            concurrency=concurrency,
            claim_batch=settings.claim_batch,
            poll_interval=settings.poll_interval,
            drain_timeout=settings.drain_timeout,
        ),
        secrets=secrets,
        worker_id=name,
        max_takeovers=settings.max_takeovers,
        visibility_timeout=settings.visibility_timeout,
        recorders=recorders,
        pass_env=None if settings.inherit_env else settings.pass_env,
        python_modules=settings.python_modules,
        task_user=settings.task_user or None,
        **_for_execution(settings),
    )


def _for_execution(settings: Settings) -> dict[str, Any]:
    """The settings that executing runs needs, as parameters of ``Runner`` and ``Worker``."""
    from tenure.runtime.options import Timing

    return {
        "timing": Timing(
            lease_duration=settings.lease_duration,
            renew_interval=settings.renew_interval,
            control_interval=settings.control_interval,
        ),
        "reconcile_interval": settings.reconcile_interval,
        "progress_interval": settings.progress_interval,
        "summary_bytes": settings.summary_bytes,
        "log_cap": settings.log_cap,
        "task_groups": settings.task_groups,
        "callbacks": callback_settings(settings),
        "retention": _retention(settings),
        "broker": settings.broker or None,
    }


@asynccontextmanager
async def open_to_send(store: RunStateStore, settings: Settings) -> AsyncIterator[Callbacks]:
    """Sends callbacks for commands that change runs without a runner; flushes them at the end."""
    from tenure.runtime.callbacks import Callbacks

    sending = callback_settings(settings)
    signing = sending.signing()
    sender = default_sender(sending.timeout, sending.allow_private, signing, sending.targets)
    callbacks = Callbacks(store, sender, sending, new_update_id)
    callbacks.open()
    try:
        yield callbacks
    finally:
        await callbacks.close()


def callback_settings(settings: Settings) -> CallbackSettings:
    from tenure.runtime.options import CallbackSettings

    return CallbackSettings(
        targets=settings.callbacks,
        hooks=settings.hooks,
        attempts=settings.callback_attempts,
        delay=settings.callback_delay,
        backoff=settings.callback_backoff,
        max_delay=settings.callback_max_delay,
        timeout=settings.callback_timeout,
        allow_private=settings.callback_allow_private,
        flush=settings.callback_flush,
    )


def _retention(settings: Settings) -> RetentionPolicy | None:
    if not settings.retention:
        return None
    from tenure.runtime.options import RetentionPolicy

    return RetentionPolicy(seconds=settings.retention, per_second=settings.prune_rate)


@asynccontextmanager
async def open_to_submit(settings: Settings) -> AsyncIterator[Runner]:
    """A runner, for commands that store something and answer quickly."""
    from tenure.runner import Runner

    make_room(settings)
    store = await asyncio.to_thread(open_store, settings.store, patience=BUSY_TIMEOUT_S)
    async with store, Runner(store, **_for_execution(settings)) as runner:
        yield runner


@asynccontextmanager
async def open_to_change(settings: Settings) -> AsyncIterator[Runner]:
    """A runner, for commands that change existing runs. ``NoSuchStore``, ``NoRunsYet``."""
    must_be_there(settings)
    async with open_to_submit(settings) as runner:
        yield runner


class HasRuns(Protocol):
    """A store or a runner."""

    async def list_runs(
        self, where: RunFilter = ..., *, limit: int = ..., cursor: str | None = ...
    ) -> Page[RunSummary]: ...


async def meant_run(runs: HasRuns, word: str) -> str:
    """The run id for a word of the command line; ``latest`` is the newest run (no id is that
    short). ``InvalidRunId``, ``RunNotFound``."""
    if word != LATEST:
        return _checked(word)
    page = await runs.list_runs(RunFilter(), limit=1)
    if not page.items:
        raise RunNotFound(LATEST)
    return page.items[0].run_id


def _checked(run_id: str) -> str:
    try:
        return check_run_id(run_id)
    except InvalidRunId as error:
        raise InvalidRunId(
            f"{error}; `tenure list` shows the runs there are, and {LATEST} is the newest"
        ) from error


def this_user() -> str:
    """The user of this process, as the machine knows it."""
    try:
        return getuser()
    except (OSError, KeyError):  # a container may have no name for its user
        return "unknown"


def must_be_able(settings: Settings, power: type, refusal: Callable[[str], Exception]) -> None:
    """Raise ``refusal`` if this kind of store lacks the capability, before opening would create the
    store."""
    kind = kind_of_store(settings.store)
    if kind is not None and not issubclass(kind, power):
        raise refusal(kind.__name__)


def ends_with_us(settings: Settings) -> bool:
    """Whether no other process can see the store."""
    return settings.store.partition(":")[0].lower() == "memory"


def make_room(settings: Settings) -> None:
    """Create the folder of the default store; the folders of others are the user's business."""
    folder = data_folder()
    if folder is None or settings.source_of("store") != DEFAULT:
        return
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(
            f"the folder for runs, {folder}, cannot be created: {error.strerror}; name another "
            "store, for example --store sqlite:///runs.db"
        ) from error
