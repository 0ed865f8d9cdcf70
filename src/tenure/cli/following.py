"""Following a run that another process executes, by asking the store again and again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from tenure.cli.differences import as_planned, changes_between
from tenure.cli.viewing import View
from tenure.model.events import Position, RecordedEvent
from tenure.model.snapshot import HostState, RunSnapshot
from tenure.model.status import HostStatus
from tenure.ports.event_log import EventLog
from tenure.ports.log_store import LogKey, LogStore
from tenure.ports.recorder import OutputChunk, OutputRecorder, RunBeginning
from tenure.ports.run_store import RunStateStore
from tenure.runtime.queries import owner_gone, owner_label, running_hosts
from tenure.runtime.waiting import pause

_PAGE = 1000
_MOST_HOSTS = 4
_WINDOW = 4096


async def follow(
    store: RunStateStore,
    run_id: str,
    view: View,
    interval: float,
    proven_dead: Callable[[str], bool],
) -> RunSnapshot:
    """Tell the view what happens, from the beginning, until the run has ended; the ended run."""
    run = await store.get_run(run_id)
    for recorder in view.recorders:
        if isinstance(recorder, RunBeginning):
            recorder.begin(as_planned(run))
    listeners = [each for each in view.recorders if isinstance(each, OutputRecorder)]
    glimpses = _Glimpses(store) if listeners and isinstance(store, LogStore) else None
    told = _Told(store)
    warned = False
    while True:
        async for event in told.since(run):
            for recorder in view.recorders:
                await recorder.record(event)
        if run.ended:
            return run
        if view.reader_left():
            raise BrokenPipeError
        if glimpses is not None:
            async for chunk in glimpses.since(run):
                for listener in listeners:
                    listener.output(chunk)
        if not warned and owner_gone(run, proven_dead):
            warned = True
            view.notice(f"{owner_label(run.owner_id)} is gone; tenure reconcile ends the run")
        await pause(interval)
        run = await store.get_run(run_id)


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
