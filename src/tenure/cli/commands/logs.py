"""``tenure logs``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from functools import cache, partial
from operator import eq
from typing import Protocol

import click
import msgspec
from msgspec import Struct

from tenure.aio import pause
from tenure.cli.arguments import Whole
from tenure.cli.context import meant_run, open_to_read, settings_for
from tenure.cli.display.lines import LineCutter, behind, lines_as_kept
from tenure.cli.display.text import cells, dim, fitting, in_color, note, one_line, padded
from tenure.cli.exit_codes import Exit
from tenure.cli.follow import STREAMS, imaginable_logs, is_abandoned
from tenure.cli.options import completes, json_option, run_argument, store_option, verb
from tenure.cli.signals import Stopped, stoppable
from tenure.config import Settings
from tenure.model.errors import TenureError
from tenure.model.snapshot import HostState, ItemState, RunSnapshot, StepState
from tenure.model.status import ENDED_HOST
from tenure.ports.store import LogKey, LogListing, LogSlice, LogStore, RunStateStore
from tenure.runtime.owners import owner_label
from tenure.system import proven_dead
from tenure.workflow.wording import did_you_mean, listed

# Selecting and reading streams.


_WINDOW_BYTES = 256 * 1024


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
    """The streams to show, by step, host, item, attempt, stream. ``NoSuchOutput`` for a step, host,
    item or attempt that the run does not have."""
    steps = _steps(run, wanted.step)
    if wanted.host is not None:
        _check_host(steps, wanted.host)
    if run.ended:
        _check_task(steps, wanted)
    indexes = {step.index for step in steps}
    if isinstance(store, LogListing):
        known = await store.list_logs(run.run_id)
    else:
        known = [
            key
            for step in steps
            for name, host in step.hosts.items()
            for key in imaginable_logs(step.index, name, host)
        ]
    fitting = [key for key in known if key.step in indexes and _fits(key, wanted)]
    if wanted.attempt is None:
        fitting = _newest_attempts(fitting)
    return sorted(fitting, key=_order)


def _order(key: LogKey) -> tuple[int, str, int, int, bool]:
    item = -1 if key.item is None else key.item
    return key.step, key.host, item, key.attempt, key.stream != "stdout"


def _steps(run: RunSnapshot, word: str | None) -> list[StepState]:
    """Several steps may have the same name: a handler runs once per notification."""
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
    """For a store without logs: the output tails in the record."""

    def __init__(self, run: RunSnapshot) -> None:
        self._run = run

    async def read(
        self, run_id: str, key: LogKey, offset: int = 0, *, limit: int = _WINDOW_BYTES
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
    """Reads streams as they grow, each from where it stopped before."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._offsets: dict[LogKey, int] = {}
        self._finished: set[LogKey] = set()

    def has_read(self, key: LogKey) -> bool:
        """Whether the stream was read to its end."""
        return key in self._finished

    async def rest(self, source: Readable, key: LogKey, run: RunSnapshot) -> AsyncIterator[bytes]:
        """What was added since the last call."""
        if key in self._finished:
            return
        while True:
            offset = self._offsets.get(key, 0)
            found = await source.read(self._run_id, key, offset, limit=_WINDOW_BYTES)
            if not found.data:
                break
            self._offsets[key] = offset + len(found.data)
            yield found.data
        if run.steps[key.step].hosts[key.host].status in ENDED_HOST:
            self._finished.add(key)  # all output of a task is stored before its end


# Showing lines, each with its step and host if there are several.


MAX_LINE_BYTES = 1 << 20
_MAX_LABEL_WIDTH = 32

ShowLine = Callable[[LogKey, bytes], None]
"""Takes whole lines, without the last line end."""


def text_lines(run: RunSnapshot, *, steps: bool, hosts: bool) -> ShowLine:
    """``web1 | line``; the step's name too if there are several steps."""
    names = {step.index: one_line(step.name) for step in run.steps} if steps else {}
    shown_hosts = {one_line(name) for each in run.steps for name in each.hosts} if hosts else set()
    widths = [max(map(cells, words)) for words in (names.values(), shown_hosts) if words]
    width = min(sum(widths) + len(widths) - 1, _MAX_LABEL_WIDTH)

    @cache
    def label(key: LogKey) -> str:
        words = [names.get(key.step, str(key.step))] if steps else []
        if hosts:
            words.append(one_line(key.host))
        if key.item is not None:
            words.append(f"[{key.item}]")
        if not words:
            return ""
        bar = in_color("failed", "|") if key.stream == "stderr" else dim("|")
        return fitting(f"{dim(padded(' '.join(words), width))} {bar} ", sys.stdout)

    def show(key: LogKey, lines: bytes) -> None:
        sys.stdout.write(f"{behind(label(key), lines_as_kept(lines))}\n")

    return show


def json_lines(run: RunSnapshot) -> ShowLine:
    names = {step.index: step.name for step in run.steps}

    @cache
    def head(key: LogKey) -> str:
        facts = {
            "step": names.get(key.step),
            "step_index": key.step,
            "host": key.host,
            "item": key.item,
            "attempt": key.attempt,
            "stream": key.stream,
        }
        return f'{msgspec.json.encode(facts).decode()[:-1]},"line":'

    def show(key: LogKey, lines: bytes) -> None:
        start = head(key)
        texts = lines.decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\r")
        sys.stdout.write("".join(f"{start}{_quoted(text)}}}\n" for text in texts.split("\n")))

    return show


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


@verb(
    "logs",
    "tenure logs latest",
    "tenure logs latest restart web1 --stream stderr",
    "tenure logs latest --follow",
)
@run_argument
@click.argument("step", required=False, shell_complete=completes("steps"))
@click.argument("host", required=False, shell_complete=completes("hosts"))
@click.option("--stream", type=click.Choice(STREAMS), help="Only this stream.")
@click.option(
    "--attempt",
    type=Whole(1),
    metavar="NUMBER",
    help="Of a retried task: this attempt.  [default: the newest]",
)
@click.option(
    "--item",
    type=Whole(0),
    metavar="NUMBER",
    help="Of a loop: this item, from 0.  [default: all]",
)
@click.option("-f", "--follow", is_flag=True, help="Continue until the run has ended.")
@click.option(
    "--raw", is_flag=True, help="Unchanged bytes, without prefixes; a terminal is still protected."
)
@json_option
@store_option
def command(
    run_id: str,
    step: str | None,
    host: str | None,
    stream: str | None,
    attempt: int | None,
    item: int | None,
    follow: bool,
    raw: bool,
    as_json: bool,
    store: str | None,
) -> int:
    """Print the output of tasks.

    STEP is a step's name or index. If several hosts or steps are shown, each line is prefixed with
    them. Bytes that are not text, and terminal control characters, show as �. With --json one
    object per line.
    """
    wanted = Wanted(step=step, host=host, stream=stream, attempt=attempt, item=item)
    style = "json" if as_json else "raw" if raw else "text"
    try:
        asyncio.run(_print(settings_for(store), run_id, wanted, style, follow))
    except Stopped:
        return Exit.HARD_STOP
    return Exit.SUCCESS


async def _print(settings: Settings, word: str, wanted: Wanted, style: str, follow: bool) -> None:
    async with open_to_read(settings) as store:
        run = await store.get_run(await meant_run(store, word))
        showing = _showing(run, wanted, style)
        if not isinstance(store, LogStore):
            note("this store keeps no full output; these are the ends that the record has")
        interval = settings.control_interval if follow else None
        await stoppable(_read(store, run, wanted, showing, interval))


async def _read(
    store: RunStateStore, run: RunSnapshot, wanted: Wanted, show: Show, interval: float | None
) -> None:
    """``interval`` in seconds between two reads; ``None``: read once."""
    reader = Reader(run.run_id)
    anything = last_look = False
    while True:
        source = store if isinstance(store, LogStore) else RecordTails(run)
        for key in await choose(store, run, wanted):
            async for data in reader.rest(source, key, run):
                anything = True
                show.add(key, data)
            if interval is None or reader.has_read(key):
                show.end(partial(eq, key))
        sys.stdout.flush()
        if run.ended or last_look or interval is None:
            break
        last_look = is_abandoned(run, proven_dead)
        if not last_look:
            await pause(interval)
        run = await store.get_run(run.run_id)
    show.end()
    if last_look and not run.ended:
        note(f"{owner_label(run.owner_id)} is gone: nothing more will be printed")
    elif not anything:
        note("nothing was printed" if run.ended else "nothing was printed yet")


class Show(Protocol):
    def add(self, key: LogKey, data: bytes) -> None: ...
    def end(self, wanted: Callable[[LogKey], bool] = ...) -> None:
        """Show an unfinished last line."""
        ...


class _Raw:
    def add(self, key: LogKey, data: bytes) -> None:
        sys.stdout.buffer.write(data)

    def end(self, wanted: Callable[[LogKey], bool] = bool) -> None:
        pass


def _showing(run: RunSnapshot, wanted: Wanted, style: str) -> Show:
    if style == "json":
        return LineCutter(json_lines(run), MAX_LINE_BYTES)
    if style == "raw" and not sys.stdout.isatty():
        return _Raw()
    hosts = {name for step in run.steps for name in step.hosts}
    labelled = style == "text"
    lines = text_lines(
        run,
        steps=labelled and wanted.step is None and len(run.steps) > 1,
        hosts=labelled and wanted.host is None and len(hosts) > 1,
    )
    return LineCutter(lines, MAX_LINE_BYTES)
