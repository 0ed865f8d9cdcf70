"""``tenure logs``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from operator import eq
from typing import Protocol

import click

from tenure.cli.arguments import Whole
from tenure.cli.display.log_lines import LONGEST_LINE, json_lines, text_lines
from tenure.cli.display.output_lines import LineCutter
from tenure.cli.display.paint import note
from tenure.cli.exits import Exit
from tenure.cli.following import is_abandoned
from tenure.cli.log_streams import STREAMS, Reader, RecordTails, Wanted, choose
from tenure.cli.opening import meant_run, reading, settings_for
from tenure.cli.stopping import Stopped, stoppable
from tenure.cli.verb import completes, json_option, run_argument, store_option, verb
from tenure.config import Settings
from tenure.model.snapshot import RunSnapshot
from tenure.ports.log_store import LogKey, LogStore
from tenure.ports.run_store import RunStateStore
from tenure.runtime.owners import owner_label
from tenure.runtime.waiting import pause
from tenure.system import proven_dead


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
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@click.option(
    "--raw", is_flag=True, help="The very bytes, without prefixes; a terminal is still protected."
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
    """Print what tasks printed.

    STEP is a step's name or index. Where several hosts or steps are shown, each line says whose
    it is. Bytes that are no text, and characters that steer a terminal, show as �. With --json one
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
    async with reading(settings) as store:
        run = await store.get_run(await meant_run(store, word))
        showing = _showing(run, wanted, style)
        if not isinstance(store, LogStore):
            note("this store keeps no full output; these are the ends that the record has")
        interval = settings.control_interval if follow else None
        await stoppable(_read(store, run, wanted, showing, interval))


async def _read(
    store: RunStateStore, run: RunSnapshot, wanted: Wanted, show: Show, interval: float | None
) -> None:
    """``interval`` between two looks; ``None``: one look."""
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
        """Show what has no line's end and gets none any more."""
        ...


class _Raw:
    def add(self, key: LogKey, data: bytes) -> None:
        sys.stdout.buffer.write(data)

    def end(self, wanted: Callable[[LogKey], bool] = bool) -> None:
        pass


def _showing(run: RunSnapshot, wanted: Wanted, style: str) -> Show:
    if style == "json":
        return LineCutter(json_lines(run), LONGEST_LINE)
    if style == "raw" and not sys.stdout.isatty():
        return _Raw()
    hosts = {name for step in run.steps for name in step.hosts}
    labelled = style == "text"
    lines = text_lines(
        run,
        steps=labelled and wanted.step is None and len(run.steps) > 1,
        hosts=labelled and wanted.host is None and len(hosts) > 1,
    )
    return LineCutter(lines, LONGEST_LINE)
