"""What ``tenure doctor`` looks at: facts, and findings that somebody should do something about."""

from __future__ import annotations

import os
import platform
import resource
import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from statistics import median
from time import perf_counter

from msgspec import Struct

from tenure._version import __version__
from tenure.bootstrap import OpenStore, open_broker, sqlite_version
from tenure.cli.broker_trial import try_broker
from tenure.cli.callbacks.targets import problem_with, target_of
from tenure.cli.display.places import place_of
from tenure.cli.opening import NoRunsYet, reading
from tenure.cli.stuck import stuck_runs
from tenure.config import (
    DEFAULT,
    PREFIX,
    READERS,
    Settings,
    broken_rule,
    data_folder,
    shown_value,
)
from tenure.model.errors import TenureError
from tenure.model.status import DeliveryState
from tenure.ports.attended import Attended
from tenure.ports.lease_store import LeaseStore
from tenure.ports.outbox import Outbox
from tenure.ports.store_clock import StoreClock
from tenure.ports.upkeep import Upkeep
from tenure.ports.wakeups import WakeupCheck
from tenure.ports.workers import WorkerInfo
from tenure.runtime.clock_offset import clock_offset
from tenure.runtime.lease_rules import RULES, Rule
from tenure.runtime.workforce import present_workers
from tenure.system import SystemClock, presence
from tenure.wire.targets import ShownTarget, shown_target
from tenure.workflow.durations import show_duration
from tenure.workflow.wording import did_you_mean

_ROUNDS = 7
_MUCH_OFFSET = 1.0
"""Seconds; clocks that are kept by NTP differ by far less."""
_LITTLE_SPACE = 200 * 1024 * 1024
_OF_TASKS = ("RUN_ID", "STEP", "HOST", "TASK_ID", "FENCE", "OUTPUT")
_OPEN_PREFIXES = ("SECRET_", "HOOK_")
_DEAD = DeliveryState.DEAD


class SettingFact(Struct, frozen=True, kw_only=True):
    name: str
    value: str
    source: str


class RuleFact(Struct, frozen=True, kw_only=True):
    rule: str
    why: str
    holds: bool | None
    """``None``: nobody can tell, for a value of it cannot be read."""
    broken_by: str | None = None
    """By which values, and where each comes from."""


class StoreFact(Struct, frozen=True, kw_only=True):
    place: str
    exists: bool
    kind: str | None = None
    durable: bool | None = None
    leases: bool | None = None
    outbox: bool | None = None
    attended_by: str | None = None
    """Who sends callbacks and marks abandoned runs, if that is not up to its users."""
    latency_ms: float | None = None
    clock_offset: float | None = None
    """Seconds by which its clock is ahead of this machine's. ``None``: it does not tell."""
    schema: int | None = None
    runs: int | None = None
    workers: tuple[WorkerInfo, ...] = ()


class BrokerFact(Struct, frozen=True, kw_only=True):
    place: str
    latency_ms: float | None = None
    """``None``: it does not answer."""


class Examination(Struct, kw_only=True):
    versions: dict[str, str] = {}
    settings: list[SettingFact] = []
    rules: list[RuleFact] = []
    callbacks: list[ShownTarget] = []
    """Targets from settings, told of every run."""
    store: StoreFact | None = None
    broker: BrokerFact | None = None
    machine: dict[str, str] = {}
    findings: list[str] = []


def examine_machine(into: Examination, environ: Mapping[str, str]) -> None:
    into.versions = {
        "tenure": __version__,
        "python": platform.python_version(),
        "sqlite": sqlite_version(),
        "system": f"{platform.system()} {platform.release()}",
    }
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    into.machine["open files"] = "no limit" if soft == resource.RLIM_INFINITY else str(soft)
    if soft != resource.RLIM_INFINITY and soft < 1024:
        into.findings.append(
            f"only {soft} files may be open: few local tasks can run at once; raise it: ulimit -n"
        )
    for variable in environ:
        problem = _odd_variable(variable)
        if problem:
            into.findings.append(problem)


def _odd_variable(variable: str) -> str | None:
    """A misspelt setting in the environment is ignored by every other command."""
    name = variable.removeprefix(PREFIX)
    known = {*READERS, *(each.lower() for each in _OF_TASKS)}
    if name == variable or name.lower() in known or name.startswith(_OPEN_PREFIXES):
        return None
    hint = did_you_mean(name.lower(), READERS)
    return f"environment {variable} is no setting" + (f"; {hint}" if hint else "")


def examine_settings(into: Examination, settings: Settings, unread: Mapping[str, str] = {}) -> None:
    """``unread`` are those that could not be read, and where they stand."""
    into.settings = [
        SettingFact(name=name, value="unreadable", source=unread[name])
        if name in unread
        else SettingFact(name=name, value=_shown(settings, name), source=settings.source_of(name))
        for name in READERS
    ]
    into.rules = [_judged(rule, settings, unread) for rule in RULES]
    folder = data_folder()
    if folder is not None and settings.source_of("store") == DEFAULT:
        _examine_folder(into, folder)


def _judged(rule: Rule, settings: Settings, unread: Mapping[str, str]) -> RuleFact:
    if any(name in unread for name in rule.names):
        return RuleFact(rule=rule.text, why=rule.why, holds=None)
    broken = broken_rule(rule, settings)
    return RuleFact(rule=rule.text, why=rule.why, holds=broken is None, broken_by=broken)


def _shown(settings: Settings, name: str) -> str:
    """Addresses never with a password."""
    value = getattr(settings, name)
    return place_of(value) if name in ("store", "broker") and value else shown_value(settings, name)


def examine_callbacks(into: Examination, settings: Settings, environ: Mapping[str, str]) -> None:
    for number, spec in enumerate(settings.callbacks, 1):
        target = target_of(spec, f"callback-{number}")
        into.callbacks.append(shown_target(target))
        problem = problem_with(target, environ)
        if problem is not None:
            into.findings.append(f"{target.name} of the settings: {problem}")


def _examine_folder(into: Examination, folder: Path) -> None:
    place = folder
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        into.findings.append(f"{place} cannot be written to: no run can be kept in {folder}")
        return
    free = shutil.disk_usage(place).free
    into.machine["free space"] = f"{free / 1024**3:.1f} GiB for {folder}"
    if free < _LITTLE_SPACE:
        into.findings.append(f"only {free // 1024**2} MiB are left for {folder}")


async def examine_store(into: Examination, settings: Settings) -> None:
    try:
        async with reading(settings) as store:
            await _examine_open(into, settings, store)
    except NoRunsYet:
        into.store = StoreFact(place=place_of(settings.store), exists=False)
    except TenureError as error:
        into.findings.append(f"the store cannot be used: {error}")


async def _examine_open(into: Examination, settings: Settings, store: OpenStore) -> None:
    latency = await _latency(lambda: store.list_runs(limit=1))
    report = await store.check_store() if isinstance(store, Upkeep) else None
    workers = await present_workers(store, presence)
    offset = None
    if isinstance(store, StoreClock):
        offset = round(await clock_offset(store, SystemClock().now), 4)
    into.store = StoreFact(
        place=place_of(settings.store),
        exists=True,
        kind=type(store).__name__,
        durable=store.durable,
        leases=isinstance(store, LeaseStore),
        outbox=isinstance(store, Outbox),
        attended_by=store.attended_by if isinstance(store, Attended) else None,
        latency_ms=round(latency * 1000, 2),
        clock_offset=offset,
        schema=report.schema if report else None,
        runs=report.runs if report else None,
        workers=tuple(workers or ()),
    )
    if not store.durable:
        into.findings.append(
            "runs do not survive the process: name a durable store, for example sqlite:///runs.db"
        )
    if report is not None:
        into.findings += report.problems
    for name in ("renew_interval", "control_interval"):
        interval = getattr(settings, name)
        if latency > interval / 4:
            into.findings.append(
                f"the store takes {latency * 1000:.0f} ms to answer; {name} is only "
                f"{show_duration(interval)}: raise it, or use a nearer store"
            )
    into.findings += [text async for text in stuck_runs(store, workers, presence)]
    if offset is not None and abs(offset) > _MUCH_OFFSET:
        into.findings.append(
            f"the clock of this machine is {abs(offset):.1f} s "
            f"{'behind' if offset > 0 else 'ahead of'} the store's: leases do not care, but times "
            "typed and shown here are off by that; align the clocks (NTP)"
        )
    if isinstance(store, WakeupCheck) and await store.hears_hints() is False:
        into.findings.append(
            "hints of other processes do not arrive: there seems to be a pooler in transaction "
            "mode in between. Add wakeups=no to the store URL, or name the server itself; runs to "
            "claim and cancel requests are found by looking"
        )
    if isinstance(store, Outbox) and (await store.list_deliveries(state=_DEAD, limit=1)).items:
        into.findings.append("callbacks were given up: tenure callbacks list --state dead")


async def examine_broker(into: Examination, settings: Settings) -> None:
    if not settings.broker:
        return
    latency = None
    try:
        broker = open_broker(settings.broker, visibility_timeout=settings.visibility_timeout)
        try:
            latency = await _latency(broker.ping)
            await try_broker(broker)
        finally:
            await broker.close()
    except TenureError as error:
        into.findings.append(
            f"the broker cannot be used ({error}): workers find runs by looking, up to "
            f"{show_duration(settings.poll_interval)} later"
        )
    milliseconds = None if latency is None else round(latency * 1000, 2)
    into.broker = BrokerFact(place=place_of(settings.broker), latency_ms=milliseconds)


async def _latency(ask: Callable[[], Awaitable[object]]) -> float:
    """Of one question, typically."""
    samples = []
    for _ in range(_ROUNDS):
        start = perf_counter()
        await ask()
        samples.append(perf_counter() - start)
    return median(samples)
