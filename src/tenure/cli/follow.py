"""Following a run that another process executes, by polling the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from tenure.aio import pause
from tenure.cli.context import meant_run, open_to_read
from tenure.cli.display.text import neutral, note, place_of, to_type
from tenure.cli.exit_codes import Exit
from tenure.cli.signals import Stopped, stoppable
from tenure.cli.view import View, conclude, showing, style_of
from tenure.config import Settings
from tenure.model.snapshot import HostState, ItemState, RunSnapshot, StepState
from tenure.model.status import ENDED_HOST, TERMINAL_RUN, HostStatus, Recovery, RunStatus
from tenure.model.update import Event, Position, RecordedEvent, record
from tenure.ports.execution import OutputChunk, OutputRecorder, RunBeginning
from tenure.ports.store import EventLog, LogKey, LogListing, LogStore, RunStateStore
from tenure.runtime.explain import explain_as_read, running_hosts
from tenure.runtime.owners import owner_label
from tenure.system import SystemClock, presence, proven_dead

_PAGE_EVENTS = 1000
_MAX_HOSTS = 4
_WINDOW_BYTES = 256 * 1024
STREAMS = ("stdout", "stderr")
_HOST_IS_OVER = ENDED_HOST | {HostStatus.UNKNOWN}
EXPLAIN_AFTER_S = 3.0
"""Seconds. A queued run with a worker begins sooner; after that the view says what it waits for."""


async def follow(
    store: RunStateStore,
    run_id: str,
    view: View,
    interval: float,
    proven_dead: Callable[[str], bool],
    explain: Callable[[RunSnapshot], Awaitable[str]],
    explain_after_s: float = EXPLAIN_AFTER_S,
) -> RunSnapshot:
    """Pass a run's events to the view, from the beginning, until the run has ended or will not move
    again; returns the run. ``explain`` says why a run that does not begin is not moving."""
    clock = asyncio.get_running_loop().time
    since = clock()
    run = await store.get_run(run_id)
    for recorder in view.recorders:
        if isinstance(recorder, RunBeginning):
            recorder.begin(as_planned(run))
    listeners = [each for each in view.recorders if isinstance(each, OutputRecorder)]
    printed = _OutputReader(store, listeners) if listeners and isinstance(store, LogStore) else None
    told = _EventReader(store)
    last_look = warned = explained = False
    while True:
        async for event in told.since(run):
            if printed is not None and event.kind == "host" and event.status in _HOST_IS_OVER:
                await printed.of_host(run, event.step_index, event.host)
            if printed is not None and event.kind == "run" and event.status in TERMINAL_RUN:
                await printed.of_all(run)
            for recorder in view.recorders:
                await recorder.record(event)
        if run.ended or last_look:
            if printed is not None:
                await printed.of_all(run)
            return run
        if view.reader_left():
            raise BrokenPipeError
        if printed is not None:
            await printed.of_running(run)
        last_look = is_abandoned(run, proven_dead)
        if not last_look:
            if not warned and (doubt := _doubt(run, proven_dead)):
                warned = True
                view.notice(doubt)
            if not explained and _is_unbegun(run) and clock() - since >= explain_after_s:
                explained = True
                view.notice(await explain(run))
            await pause(interval)
        run = await store.get_run(run_id)


def is_abandoned(run: RunSnapshot, proven_dead: Callable[[str], bool]) -> bool:
    """Its process is certainly gone, and it does not resume. One more read after that returns
    everything the run has written."""
    return (
        not run.ended
        and run.recovery is Recovery.INTERRUPT
        and run.owner_id is not None
        and proven_dead(run.owner_id)
    )


def _is_unbegun(run: RunSnapshot) -> bool:
    """Queued, and no worker is about to begin it."""
    return run.status is RunStatus.QUEUED and run.owner_id is None


def _doubt(run: RunSnapshot, proven_dead: Callable[[str], bool]) -> str | None:
    """Why the run may take long, if its owner gives no sign of life. An expired lease proves
    nothing: the owner may only be cut off from the store."""
    if run.owner_id is None:
        return None
    owner, resumes = owner_label(run.owner_id), run.recovery is Recovery.RESUME
    if resumes and proven_dead(run.owner_id):
        return f"{owner} is gone; the next worker goes on with the run"
    if not run.owner_lost:
        return None
    if resumes:
        return f"{owner} has not been heard of; the next worker goes on with the run"
    return to_type(f"{owner} has not been heard of; if it is gone: tenure reconcile")


def as_planned(run: RunSnapshot) -> RunSnapshot:
    """The run as it was before it began."""
    steps = tuple(
        StepState(
            index=step.index,
            name=step.name,
            kind=step.kind,
            action=step.action,
            notified_by=step.notified_by,
            hosts=dict.fromkeys(step.hosts, HostState()),
        )
        for step in run.steps
    )
    return replace(run, status=RunStatus.QUEUED, steps=steps)


def _status_read(run: RunSnapshot, at: datetime) -> RecordedEvent:
    """For stores without a journal: the present status as an event."""
    said = Event(type=f"run.{run.status}", status=run.status, message=run.message, error=run.error)
    return record(said, run_id=run.run_id, version=run.version, seq=0, at=at, fence=run.fence)


class _EventReader:
    """Reads the events that were not shown yet."""

    def __init__(self, store: RunStateStore) -> None:
        self._store = store
        self._position = Position()
        self._status: RunStatus | None = None

    async def since(self, run: RunSnapshot) -> AsyncIterator[RecordedEvent]:
        """Every version that was read has all its events in the journal."""
        if not isinstance(self._store, EventLog):
            if run.status is not self._status and run.updated_at is not None:
                self._status = run.status
                yield _status_read(run, run.updated_at)
            return
        while True:
            events = await self._store.read_events(run.run_id, self._position, limit=_PAGE_EVENTS)
            for event in events:
                self._position = event.position
                yield event
            if len(events) < _PAGE_EVENTS:
                return


class _OutputReader:
    """All output of the run, each byte told once: of a few hosts while they run, of each other one
    before its end is told."""

    def __init__(self, store: LogStore, listeners: Sequence[OutputRecorder]) -> None:
        self._store = store
        self._listeners = listeners
        self._ends: dict[LogKey, int] = {}
        self._over: set[LogKey] = set()
        self._kept: dict[tuple[int, str], list[LogKey]] = {}
        self._version = -1

    async def of_running(self, run: RunSnapshot) -> None:
        for step in run.steps:
            for name, host in running_hosts(step)[-_MAX_HOSTS:]:
                await self._tell(run, step, imaginable_logs(step.index, name, host))

    async def of_host(self, run: RunSnapshot, index: int | None, host: str | None) -> None:
        if index is None or host is None or index >= len(run.steps):
            return
        await self._tell(run, run.steps[index], (await self._keys(run)).get((index, host), ()))

    async def of_all(self, run: RunSnapshot) -> None:
        self._version = -1  # something may have been printed since
        for (index, _), keys in (await self._keys(run)).items():
            if index < len(run.steps):
                await self._tell(run, run.steps[index], keys)

    async def _keys(self, run: RunSnapshot) -> dict[tuple[int, str], list[LogKey]]:
        """Of what there is output, asked once for each state of the run."""
        if self._version != run.version:
            self._version, self._kept = run.version, {}
            if isinstance(self._store, LogListing):
                found = await self._store.list_logs(run.run_id)
            else:
                found = [
                    key
                    for step in run.steps
                    for name, host in step.hosts.items()
                    for key in imaginable_logs(step.index, name, host)
                ]
            for key in found:
                self._kept.setdefault((key.step, key.host), []).append(key)
        return self._kept

    async def _tell(self, run: RunSnapshot, step: StepState, keys: Iterable[LogKey]) -> None:
        for key in keys:
            if key in self._over:
                continue
            await self._tell_stream(run, step, key)
            if _is_over(step.hosts.get(key.host), key):
                self._over.add(key)

    async def _tell_stream(self, run: RunSnapshot, step: StepState, key: LogKey) -> None:
        while True:
            end = self._ends.get(key, 0)
            found = await self._store.read(run.run_id, key, end, limit=_WINDOW_BYTES)
            self._ends[key] = found.offset + len(found.data)
            if not found.data:
                return
            chunk = OutputChunk(
                run_id=run.run_id,
                step_index=step.index,
                step=step.name,
                host=key.host,
                stream=key.stream,
                data=found.data,
            )
            for listener in self._listeners:
                listener.output(chunk)
            if self._ends[key] >= found.size:
                return


def _is_over(host: HostState | None, key: LogKey) -> bool:
    """As the record has it, no more is printed there."""
    if host is None:
        return False
    task = host if key.item is None or key.item >= len(host.items) else host.items[key.item]
    return task.status in ENDED_HOST or key.attempt < task.attempts


def imaginable_logs(step: int, name: str, host: HostState) -> Iterator[LogKey]:
    """Where the store cannot say: each attempt that the record has may have printed something."""
    tasks: list[tuple[int | None, ItemState]] = list(enumerate(host.items)) or [(None, host)]
    for item, state in tasks:
        for attempt in range(1, state.attempts + 1):
            for stream in STREAMS:
                yield LogKey(step=step, host=name, item=item, attempt=attempt, stream=stream)


def watch(settings: Settings, word: str, stopped: str, *, as_json: bool) -> int:
    """Returns the run's exit code. ``stopped`` is printed when Ctrl-C ends the watching."""
    style = style_of(as_json=as_json, quiet=False)
    place = f"store {place_of(settings.store)}"
    try:
        with showing(style, place) as view:
            run = asyncio.run(_watch(settings, word, view))
    except Stopped:
        note(stopped)
        return Exit.HARD_STOP
    return conclude(run, style, place)


async def _watch(settings: Settings, word: str, view: View) -> RunSnapshot:
    async with open_to_read(settings) as store:
        run_id = await meant_run(store, word)
        interval = settings.control_interval
        explain = partial(_explain, store)
        return await stoppable(follow(store, run_id, view, interval, proven_dead, explain))


async def _explain(store: RunStateStore, run: RunSnapshot) -> str:
    """The sentence of ``tenure explain``."""
    now = SystemClock().now()
    return to_type(neutral((await explain_as_read(store, run, now=now, presence=presence)).text))
