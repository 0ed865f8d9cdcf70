"""Following a run that another process executes, by asking the store again and again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial

from msgspec.structs import replace

from tenure.aio import pause
from tenure.cli.context import meant_run, open_to_read
from tenure.cli.display.text import neutral, note, place_of
from tenure.cli.exit_codes import Exit
from tenure.cli.signals import Stopped, stoppable
from tenure.cli.view import View, conclude, showing, style_of
from tenure.config import Settings
from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import HostStatus, Recovery, RunStatus, StepStatus
from tenure.model.update import Event, Position, RecordedEvent, record
from tenure.ports.execution import OutputChunk, OutputRecorder, RunBeginning
from tenure.ports.store import EventLog, LogKey, LogStore, RunStateStore
from tenure.runtime.explain import explain_as_read, running_hosts
from tenure.runtime.owners import owner_label
from tenure.system import SystemClock, presence, proven_dead

# What happened between two readings of a run, where the store keeps no journal of it.


def as_planned(run: RunSnapshot) -> RunSnapshot:
    """As it was before anything happened."""
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


def changes_between(old: RunSnapshot, new: RunSnapshot) -> Iterator[RecordedEvent]:
    """As events, in the order a journal would have them. A status that came and went in between is
    missed: nobody kept it."""
    events = list(_step_changes(old, new))
    if old.status is not new.status:
        said = Event(
            type=f"run.{new.status}", status=new.status, message=new.message, error=new.error
        )
        events.insert(0 if new.status is RunStatus.RUNNING else len(events), said)
    if new.updated_at is None:
        return
    for seq, event in enumerate(events):
        yield record(
            event,
            run_id=new.run_id,
            version=new.version,
            seq=seq,
            at=new.updated_at,
            fence=new.fence,
        )


def _step_changes(old: RunSnapshot, new: RunSnapshot) -> Iterator[Event]:
    known = {step.index: step for step in old.steps}
    for step in new.steps:
        before = known.get(step.index) or StepState(index=step.index)
        moved = step.status is not before.status
        starts = step.status is StepStatus.RUNNING
        if moved and starts:
            yield _said(step, "step", step.status, step.message)
        for name, host in step.hosts.items():
            if host.status is not before.hosts.get(name, HostState()).status:
                yield _said(step, "host", host.status, host.message, host=name)
        if moved and not starts:
            yield _said(step, "step", step.status, step.message)


def _said(
    step: StepState, kind: str, status: str, message: str | None, host: str | None = None
) -> Event:
    return Event(
        type=f"{kind}.{status}",
        status=status,
        step=step.name,
        step_index=step.index,
        host=host,
        message=message,
    )


_PAGE = 1000
_MOST_HOSTS = 4
_WINDOW = 4096
PATIENCE = 3.0
"""Seconds. A queued run that a worker sees begins sooner; of one that does not, somebody who waits
wants to know why."""


async def follow(
    store: RunStateStore,
    run_id: str,
    view: View,
    interval: float,
    proven_dead: Callable[[str], bool],
    explain: Callable[[RunSnapshot], Awaitable[str]],
    patience: float = PATIENCE,
) -> RunSnapshot:
    """Tell the view what happens, from the beginning, until the run has ended or will never move
    again; the run as it then stands. ``explain`` says why one that nobody begins is not moving."""
    clock = asyncio.get_running_loop().time
    since = clock()
    run = await store.get_run(run_id)
    for recorder in view.recorders:
        if isinstance(recorder, RunBeginning):
            recorder.begin(as_planned(run))
    listeners = [each for each in view.recorders if isinstance(each, OutputRecorder)]
    glimpses = _Glimpses(store) if listeners and isinstance(store, LogStore) else None
    told = _Told(store)
    last_look = warned = explained = False
    while True:
        async for event in told.since(run):
            for recorder in view.recorders:
                await recorder.record(event)
        if run.ended or last_look:
            return run
        if view.reader_left():
            raise BrokenPipeError
        if glimpses is not None:
            async for chunk in glimpses.since(run):
                for listener in listeners:
                    listener.output(chunk)
        last_look = is_abandoned(run, proven_dead)
        if not last_look:
            if not warned and (doubt := _doubt(run, proven_dead)):
                warned = True
                view.notice(doubt)
            if not explained and _is_unbegun(run) and clock() - since >= patience:
                explained = True
                view.notice(await explain(run))
            await pause(interval)
        run = await store.get_run(run_id)


def is_abandoned(run: RunSnapshot, proven_dead: Callable[[str], bool]) -> bool:
    """Nobody will go on with it: its process is gone for certain, and it does not resume. Whoever
    reads it once more after that knows all it will ever say by itself."""
    return (
        not run.ended
        and run.recovery is Recovery.INTERRUPT
        and run.owner_id is not None
        and proven_dead(run.owner_id)
    )


def _is_unbegun(run: RunSnapshot) -> bool:
    """And nobody is about to begin it."""
    return run.status is RunStatus.QUEUED and run.owner_id is None


def _doubt(run: RunSnapshot, proven_dead: Callable[[str], bool]) -> str | None:
    """Why the run may take long, if its owner gives no sign of life. A lease that ran out proves
    nothing: its owner may only be cut off from the store."""
    if run.owner_id is None:
        return None
    owner, resumes = owner_label(run.owner_id), run.recovery is Recovery.RESUME
    if resumes and proven_dead(run.owner_id):
        return f"{owner} is gone; the next worker goes on with the run"
    if not run.owner_lost:
        return None
    if resumes:
        return f"{owner} has not been heard of; the next worker goes on with the run"
    return f"{owner} has not been heard of; if it is gone: tenure reconcile"


class _Told:
    """What of a run has been told already."""

    def __init__(self, store: RunStateStore) -> None:
        self._store = store
        self._position = Position()
        self._last: RunSnapshot | None = None

    async def since(self, run: RunSnapshot) -> AsyncIterator[RecordedEvent]:
        """A version that was read has all its events in the journal."""
        if not isinstance(self._store, EventLog):
            before, self._last = self._last or as_planned(run), run
            for event in changes_between(before, run):
                yield event
            return
        while True:
            events = await self._store.read_events(run.run_id, self._position, limit=_PAGE)
            for event in events:
                self._position = event.position
                yield event
            if len(events) < _PAGE:
                return


class _Glimpses:
    """The newest output of a few hosts that run now; ``tenure logs`` has it all."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._ends: dict[tuple[object, ...], int] = {}

    async def since(self, run: RunSnapshot) -> AsyncIterator[OutputChunk]:
        for step in run.steps:
            for name, host in running_hosts(step)[-_MOST_HOSTS:]:
                for stream in ("stdout", "stderr"):
                    data = await self._newest(run.run_id, _key(step.index, name, host, stream))
                    if data:
                        yield OutputChunk(
                            run_id=run.run_id,
                            step_index=step.index,
                            step=step.name,
                            host=name,
                            stream=stream,
                            data=data,
                        )

    async def _newest(self, run_id: str, key: LogKey) -> bytes:
        known = (key.step, key.host, key.item, key.attempt, key.stream)
        end = self._ends.get(known, 0)
        found = await self._store.read(run_id, key, end, limit=_WINDOW)
        if found.size - end > _WINDOW:
            found = await self._store.read(run_id, key, found.size - _WINDOW, limit=_WINDOW)
        self._ends[known] = found.offset + len(found.data)
        return found.data


def _key(step: int, name: str, host: HostState, stream: str) -> LogKey:
    for number, item in enumerate(host.items):
        if item.status is HostStatus.RUNNING:
            attempt = max(item.attempts, 1)
            return LogKey(step=step, host=name, item=number, attempt=attempt, stream=stream)
    return LogKey(step=step, host=name, attempt=max(host.attempts, 1), stream=stream)


# Watching a run to its end, as a command does: the view, Ctrl-C, the exit code.


def watch(settings: Settings, word: str, stopped: str, *, as_json: bool) -> int:
    """The exit code is the run's. ``stopped`` is said if somebody no longer wants to watch."""
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
    """As ``tenure explain`` does."""
    now = SystemClock().now()
    return neutral((await explain_as_read(store, run, now=now, presence=presence)).text)
