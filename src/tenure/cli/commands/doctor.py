"""``tenure doctor``."""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import shlex
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

from msgspec import Struct

from tenure._version import __version__
from tenure.bootstrap import OpenStore, is_on_disk, open_broker, sqlite_version
from tenure.cli.commands.callbacks import problem_with, target_of
from tenure.cli.context import NoRunsYet, open_to_read, settings_for
from tenure.cli.display import json_lines
from tenure.cli.display.text import bold, counted, dim, in_color, one_line, place_of, say, sign
from tenure.cli.exit_codes import Exit
from tenure.cli.options import broker_option, json_option, store_option, verb
from tenure.config import (
    DEFAULT,
    PREFIX,
    READERS,
    InvalidSettings,
    Settings,
    broken_rule,
    data_folder,
    shown_value,
)
from tenure.model.errors import TenureError
from tenure.model.query import RunFilter
from tenure.model.status import DeliveryState, Recovery
from tenure.model.tokens import Role
from tenure.ports.callbacks import Outbox
from tenure.ports.leases import LeaseStore, Presence, WakeupCheck, WorkerInfo
from tenure.ports.store import Attended, CensusTaking, RunStateStore, StoreClock, TokenStore, Upkeep
from tenure.runtime.explain import clock_offset, present_workers, serving
from tenure.runtime.options import LEASE_RULES, LeaseRule
from tenure.runtime.owners import (
    HELD,
    UNFINISHED,
    all_runs,
    doubt_about,
    owned_runs,
    owner_label,
    unattended,
)
from tenure.system import SystemClock, presence
from tenure.wire.callbacks import ShownTarget, shown_target
from tenure.workflow.durations import show_duration
from tenure.workflow.wording import did_you_mean, listed

# Runs that need an operator's action.


async def stuck_runs(
    store: RunStateStore,
    workers: Sequence[WorkerInfo] | None,
    presence: Callable[[str], Presence],
) -> AsyncIterator[str]:
    """One finding each. ``workers`` are the live ones; ``None`` if the store keeps no list."""
    lost = unattended(await owned_runs(store, RunFilter(statuses=UNFINISHED)), presence)
    if lost.to_end:
        runs = counted(lost.to_end, "unfinished run")
        yield f"{runs} without an owner that renews: tenure reconcile"
    if workers is None:
        return
    waiting = await _waiting(store)
    if lost.to_resume:
        waiting += await _to_resume(store, presence)
    for queue, number in sorted(waiting.items()):
        if not serving(queue, workers):
            runs = f"{counted(number, 'run')} {'waits' if number == 1 else 'wait'}"
            start = f"tenure worker --queue {shlex.quote(queue)}"
            yield f"{runs} in queue {queue!r}, which no worker serves: {start}"


async def _waiting(store: RunStateStore) -> Counter[str]:
    """Runs by queue that wait for their first worker, or were released."""
    if not isinstance(store, CensusTaking):
        return Counter()
    return Counter({each.queue: each.runs for each in (await store.take_census()).queues})


async def _to_resume(store: RunStateStore, presence: Callable[[str], Presence]) -> Counter[str]:
    """Runs by queue that have lost their worker."""
    return Counter(
        [
            run.queue
            async for run in all_runs(store, HELD)
            if run.recovery is Recovery.RESUME
            and run.cancel_requested_at is None
            and doubt_about(run, presence) is not None
        ]
    )


# The examination: facts, and findings that need an action.


_LATENCY_SAMPLES = 7
_MAX_CLOCK_OFFSET_S = 1.0
"""Seconds; clocks kept by NTP differ by far less."""
_MIN_FREE_BYTES = 200 * 1024 * 1024
_TASK_VARIABLES = ("RUN_ID", "STEP", "HOST", "TASK_ID", "FENCE", "OUTPUT")
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
    """``None`` if one of its settings cannot be read."""
    broken_by: str | None = None
    """The values that break it, and where each comes from."""


class StoreFact(Struct, frozen=True, kw_only=True):
    place: str
    exists: bool
    kind: str | None = None
    durable: bool | None = None
    leases: bool | None = None
    outbox: bool | None = None
    attended_by: str | None = None
    """What sends callbacks and marks abandoned runs, if not every process that uses the store."""
    latency_ms: float | None = None
    clock_offset: float | None = None
    """Seconds by which its clock is ahead of this machine's. ``None``: unknown."""
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
    """Targets from the settings, used for every run."""
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
    """A misspelt setting in the environment, which every other command ignores."""
    name = variable.removeprefix(PREFIX)
    known = {*READERS, *(each.lower() for each in _TASK_VARIABLES)}
    if name == variable or name.lower() in known or name.startswith(_OPEN_PREFIXES):
        return None
    hint = did_you_mean(name.lower(), READERS)
    return f"environment {variable} is no setting" + (f"; {hint}" if hint else "")


def examine_settings(into: Examination, settings: Settings, unread: Mapping[str, str] = {}) -> None:
    """``unread`` are settings that could not be read, and where they come from."""
    into.settings = [
        SettingFact(name=name, value="unreadable", source=unread[name])
        if name in unread
        else SettingFact(name=name, value=_shown(settings, name), source=settings.source_of(name))
        for name in READERS
    ]
    into.rules = [_judged(rule, settings, unread) for rule in LEASE_RULES]
    folder = data_folder()
    if folder is not None and settings.source_of("store") == DEFAULT:
        _examine_folder(into, folder)


def _judged(rule: LeaseRule, settings: Settings, unread: Mapping[str, str]) -> RuleFact:
    if any(name in unread for name in rule.names):
        return RuleFact(rule=rule.text, why=rule.why, holds=None)
    broken = broken_rule(rule, settings)
    return RuleFact(rule=rule.text, why=rule.why, holds=broken is None, broken_by=broken)


def _shown(settings: Settings, name: str) -> str:
    """The value as text; URLs without passwords."""
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
    if free < _MIN_FREE_BYTES:
        into.findings.append(f"only {free // 1024**2} MiB are left for {folder}")


async def examine_store(into: Examination, settings: Settings) -> None:
    try:
        async with open_to_read(settings) as store:
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
    await _examine_tokens(into, settings, store)
    for name in ("renew_interval", "control_interval"):
        interval = getattr(settings, name)
        if latency > interval / 4:
            into.findings.append(
                f"the store takes {latency * 1000:.0f} ms to answer; {name} is only "
                f"{show_duration(interval)}: raise it, or use a nearer store"
            )
    into.findings += [text async for text in stuck_runs(store, workers, presence)]
    if offset is not None and abs(offset) > _MAX_CLOCK_OFFSET_S:
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


async def _examine_tokens(into: Examination, settings: Settings, store: OpenStore) -> None:
    """A task can open a database file of its own user, whatever token submitted its run."""
    if not is_on_disk(settings.store) or settings.task_user or not isinstance(store, TokenStore):
        return
    operators = [each for each in await store.list_tokens() if each.role is Role.OPERATOR]
    if operators:
        into.findings.append(
            "an operator's token is as good as an admin's here: tasks run as the user of their "
            "worker, and can write to this store's files; set task_user for a worker of root, or "
            "use PostgreSQL (docs/operations/security.md)"
        )


async def examine_broker(into: Examination, settings: Settings) -> None:
    if not settings.broker:
        return
    latency = None
    try:
        broker = open_broker(settings.broker, visibility_timeout=settings.visibility_timeout)
        try:
            latency = await _latency(broker.ping)
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
    """Of one request: the median of several."""
    samples = []
    for _ in range(_LATENCY_SAMPLES):
        start = perf_counter()
        await ask()
        samples.append(perf_counter() - start)
    return median(samples)


_MIN_SHOWN_OFFSET_S = 0.005
"""Seconds; smaller differences are within the jitter of the round trip."""


_LOOKS = {True: "success", False: "failed", None: "unknown"}


@verb("doctor", "tenure doctor", "tenure doctor --store sqlite:///runs.db --json")
@json_option
@store_option
@broker_option
def command(as_json: bool, store: str | None, broker: str | None) -> int:
    """Check settings, store, broker and machine; explain what is wrong.

    Shows every setting and where it comes from, whether the lease settings fit together and why
    they must, how fast store and broker answer, and how far the store's clock is from this
    machine's. Exit code 1 if there is something to do.
    """
    found = Examination()
    examine_machine(found, os.environ)
    unread: Mapping[str, str] = {}
    try:
        settings = settings_for(store, broker)
    except InvalidSettings as error:  # examined all the same
        settings, unread = error.settings, error.unread
        found.findings += error.problems
    examine_settings(found, settings, unread)
    examine_callbacks(found, settings, os.environ)
    if settings.store:
        asyncio.run(examine_store(found, settings))
    asyncio.run(examine_broker(found, settings))
    say(json_lines.as_json(found) if as_json else "\n".join(_lines(found)))
    return Exit.FAILED if found.findings else Exit.SUCCESS


def _lines(found: Examination) -> Iterator[str]:
    yield bold("Versions")
    yield from _facts(found.versions)
    if found.settings:
        yield f"\n{bold('Settings')}"
        for fact in found.settings:
            value = one_line(fact.value).ljust(10)
            yield f"  {dim(fact.name.ljust(24))}{value}  {dim(one_line(fact.source))}"
        yield f"\n{bold('Leases')}"
        for rule in found.rules:
            look = _LOOKS[rule.holds]
            yield f"  {in_color(look, sign(look))} {rule.rule}"
            yield f"    {dim(rule.why)}"
            if rule.broken_by is not None:
                yield f"    {one_line(rule.broken_by.partition(': ')[2])}"
    if found.callbacks:
        yield f"\n{bold('Callbacks')}"
        for target in found.callbacks:
            signed = f"signed with {target.secret_env}" if target.secret_env else "not signed"
            about = f"{', '.join(target.events)}; {signed}"
            yield f"  {one_line(target.url or '')}  {dim(about)}"
    if found.store is not None:
        yield f"\n{bold('Store')}"
        yield from _facts(_store(found.store))
        for worker in found.store.workers:
            name = one_line(owner_label(worker.owner_id))
            busy = f"{worker.running} of {worker.concurrency} runs"
            if worker.draining:
                busy += ", stopping"
            serves = dim(f"{listed(worker.queues)}; {busy}")
            yield f"  {dim('worker'.ljust(12))}{name}  {serves}"
    if found.broker is not None:
        yield f"\n{bold('Broker')}"
        yield from _facts(_broker(found.broker))
    yield f"\n{bold('Machine')}"
    yield from _facts(found.machine)
    yield ""
    if found.findings:
        yield in_color("failed", f"{sign('failed')} {counted(len(found.findings), 'finding')}")
        for finding in found.findings:
            yield f"  {one_line(finding)}"
    else:
        yield in_color("success", f"{sign('success')} nothing to complain about")


def _store(store: StoreFact) -> dict[str, object]:
    if not store.exists:
        return {"place": store.place, "state": "not there yet; the first run creates it"}
    return {
        "place": store.place,
        "kind": store.kind,
        "survives": "yes" if store.durable else "no",
        "leases": "yes" if store.leases else "no: embedded runs only",
        "outbox": _outbox(store),
        "answers in": f"{store.latency_ms:g} ms",
        "clock": None if store.clock_offset is None else _clock(store.clock_offset),
        "schema": store.schema,
        "runs": store.runs,
    }


def _clock(offset: float) -> str:
    if abs(offset) < _MIN_SHOWN_OFFSET_S:
        return "the same as here"
    return f"{abs(offset):.2f} s {'ahead of' if offset > 0 else 'behind'} this machine's"


def _outbox(store: StoreFact) -> str:
    if store.attended_by is not None:
        return f"callbacks are sent by {store.attended_by}"
    return "yes" if store.outbox else "no: callbacks are sent from memory"


def _broker(broker: BrokerFact) -> dict[str, object]:
    away = broker.latency_ms is None
    return {
        "place": broker.place,
        "answers in": "not at all" if away else f"{broker.latency_ms:g} ms",
    }


def _facts(facts: Mapping[str, object]) -> Iterator[str]:
    for name, value in facts.items():
        if value is not None:
            yield f"  {dim(name.ljust(12))}{one_line(str(value))}"
