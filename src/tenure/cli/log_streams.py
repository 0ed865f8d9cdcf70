"""Which streams of output are asked for, and reading them to their end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from msgspec import Struct

from tenure.model.errors import TenureError
from tenure.model.snapshot import HostState, ItemState, RunSnapshot, StepState
from tenure.model.status import ENDED_HOST
from tenure.ports.log_listing import LogListing
from tenure.ports.log_store import LogKey, LogSlice
from tenure.ports.run_store import RunStateStore
from tenure.workflow.wording import did_you_mean, listed

STREAMS = ("stdout", "stderr")
_WINDOW = 256 * 1024


class NoSuchOutput(TenureError, LookupError):
    """The run has no such step or host."""


class Wanted(Struct, frozen=True, kw_only=True):
    step: str | None = None
    """A name or an index."""
    host: str | None = None
    stream: str | None = None
    attempt: int | None = None
    """``None``: the newest."""
    item: int | None = None


async def choose(store: RunStateStore, run: RunSnapshot, wanted: Wanted) -> list[LogKey]:
    """By step, host, item, attempt, stream. ``NoSuchOutput`` for what is not there, and is not to
    be expected either."""
    steps = _steps(run, wanted.step)
    if wanted.host is not None:
        _check_host(steps, wanted.host)
    if run.ended:
        _check_task(steps, wanted)
    indexes = {step.index for step in steps}
    if isinstance(store, LogListing):
        known = await store.list_logs(run.run_id)
    else:
        known = list(_imaginable(steps))
    fitting = [key for key in known if key.step in indexes and _fits(key, wanted)]
    if wanted.attempt is None:
        fitting = _newest_attempts(fitting)
    return sorted(fitting, key=_order)


def _order(key: LogKey) -> tuple[int, str, int, int, bool]:
    item = -1 if key.item is None else key.item
    return key.step, key.host, item, key.attempt, key.stream != "stdout"


def _steps(run: RunSnapshot, word: str | None) -> list[StepState]:
    """A name may be several steps': a handler runs as often as it was notified."""
    if word is None:
        return list(run.steps)
    named = [step for step in run.steps if step.name == word]
    if not named and word.isdecimal():
        named = [step for step in run.steps if step.index == int(word[:9])]
    if named:
        return named
    names = dict.fromkeys(step.name for step in run.steps)
    hint = did_you_mean(word, names) or f"there are: {listed(names)}"
    raise NoSuchOutput(f"run {run.run_id} has no step {word[:60]!r}; {hint}")


def _check_host(steps: list[StepState], host: str) -> None:
    names = dict.fromkeys(name for step in steps for name in step.hosts)
    if host not in names:
        there = f"there are: {listed(names)}" if names else "it was on no host"
        hint = did_you_mean(host, names) or there
        raise NoSuchOutput(f"no host {host[:60]!r} in {listed([s.name for s in steps])}; {hint}")


def _check_task(steps: list[StepState], wanted: Wanted) -> None:
    tasks = [
        task
        for step in steps
        for name, host in step.hosts.items()
        if wanted.host in (None, name)
        for task in _tasks(host)
    ]
    last = max((item for item, _ in tasks if item is not None), default=None)
    if wanted.item is not None and (last is None or wanted.item > last):
        there = "nothing here is a loop" if last is None else f"there are 0 to {last}"
        raise NoSuchOutput(f"there is no item {wanted.item}; {there}")
    newest = max((state.attempts for _, state in tasks), default=0)
    if wanted.attempt is not None and wanted.attempt > newest:
        there = f"the newest is {newest}" if newest else "nothing was tried"
        raise NoSuchOutput(f"there was no attempt {wanted.attempt}; {there}")


def _imaginable(steps: list[StepState]) -> list[LogKey]:
    """Where the store cannot say: every attempt the record tells of may have printed something."""
    return [
        LogKey(step=step.index, host=name, item=item, attempt=attempt, stream=stream)
        for step in steps
        for name, host in step.hosts.items()
        for item, state in _tasks(host)
        for attempt in range(1, state.attempts + 1)
        for stream in STREAMS
    ]


def _tasks(host: HostState) -> list[tuple[int | None, ItemState]]:
    return list(enumerate(host.items)) or [(None, host)]


def _fits(key: LogKey, wanted: Wanted) -> bool:
    return (
        (wanted.host is None or key.host == wanted.host)
        and (wanted.stream is None or key.stream == wanted.stream)
        and (wanted.attempt is None or key.attempt == wanted.attempt)
        and (wanted.item is None or key.item == wanted.item)
    )


def _newest_attempts(keys: list[LogKey]) -> list[LogKey]:
    newest: dict[tuple[int, str, int | None], int] = {}
    for key in keys:
        task = (key.step, key.host, key.item)
        newest[task] = max(newest.get(task, 0), key.attempt)
    return [key for key in keys if newest[key.step, key.host, key.item] == key.attempt]


class RecordTails:
    """For a store without logs: the ends of output that the record keeps."""

    def __init__(self, run: RunSnapshot) -> None:
        self._run = run

    async def read(
        self, run_id: str, key: LogKey, offset: int = 0, *, limit: int = _WINDOW
    ) -> LogSlice:
        host = self._run.steps[key.step].hosts[key.host]
        state = host if key.item is None else host.items[key.item]
        text = (state.stdout if key.stream == "stdout" else state.stderr) or ""
        data = text.encode() if key.attempt == state.attempts else b""
        return LogSlice(offset=offset, data=data[offset : offset + limit], size=len(data))


class Readable(Protocol):
    async def read(
        self, run_id: str, key: LogKey, offset: int = 0, *, limit: int = ...
    ) -> LogSlice: ...


class Reader:
    """Reads streams as they grow; knows how far it has come in each."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._offsets: dict[LogKey, int] = {}
        self._finished: set[LogKey] = set()

    def has_read(self, key: LogKey) -> bool:
        """Whether nothing more will come."""
        return key in self._finished

    async def rest(self, source: Readable, key: LogKey, run: RunSnapshot) -> AsyncIterator[bytes]:
        """What is there beyond what was read before."""
        if key in self._finished:
            return
        while True:
            offset = self._offsets.get(key, 0)
            found = await source.read(self._run_id, key, offset, limit=_WINDOW)
            if not found.data:
                break
            self._offsets[key] = offset + len(found.data)
            yield found.data
        if run.steps[key.step].hosts[key.host].status in ENDED_HOST:
            self._finished.add(key)  # all its output was there before it was said to have ended
