"""A worker as a command runs it: signals drain it, and what it does is told run by run."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial

from tenure.cli.display.json_lines import JsonView
from tenure.cli.display.moments import clock
from tenure.cli.display.places import place_of
from tenure.cli.display.printer import Printer
from tenure.cli.display.text import one_line
from tenure.cli.exits import Exit
from tenure.cli.fronting import Front
from tenure.cli.opening import ends_with_us, must_be_able, new_worker
from tenure.cli.speaking import announcer, tell_everything
from tenure.cli.stopping import LastWords, Stopped, stoppable
from tenure.cli.streams import for_answers_only
from tenure.config import Settings
from tenure.model.events import RecordedEvent
from tenure.ports.lease_store import LeaseStore
from tenure.ports.recorder import Recorder
from tenure.ports.transport import DEFAULT_GRACE
from tenure.runtime.owners import owner_label
from tenure.runtime.submit import nobody_could_submit, not_servable
from tenure.system import settle_down
from tenure.worker import Worker

Fronting = Callable[[Settings], AbstractAsyncContextManager[Front]]


def serve(
    settings: Settings,
    opening: str,
    *,
    queues: Sequence[str],
    concurrency: int,
    secrets: Mapping[str, str],
    name: str | None,
    quiet: bool,
    as_json: bool,
    front: Fronting | None = None,
) -> int:
    """Until it is told to stop; ``opening`` is said once it serves. With ``front`` a gateway stands
    before the same store, and serves until the worker has drained."""
    must_be_able(settings, LeaseStore, not_servable)
    if front is None and ends_with_us(settings):
        raise nobody_could_submit(place_of(settings.store))
    tell_everything(settings)
    printer = Printer(sys.stdout)
    told: Recorder = JsonView(printer) if as_json else RunLines(printer)

    async def serving() -> None:
        async with front(settings) if front is not None else nullcontext() as gateway:
            worker = new_worker(
                settings,
                gateway.store if gateway is not None else None,
                queues=queues,
                concurrency=concurrency,
                secrets=secrets,
                name=name,
                recorders=() if quiet else (told,),
            )
            at = f"; API at {gateway.address}" if gateway is not None else ""
            said = partial(announcer(settings), f"{opening}{at}; Ctrl-C drains")
            await _serve(worker, settings, None if quiet or as_json else said, last_words)

    def stopped() -> int:
        announcer(settings)(
            "stopped at once; its runs go on with the next worker, those that do not resume are "
            "marked interrupted: on this machine in seconds, on others when their leases have ended"
        )
        return Exit.HARD_STOP

    last_words = LastWords(stopped)
    settle_down()
    try:
        with for_answers_only():
            asyncio.run(serving())
    except Stopped:
        return last_words()
    finally:
        printer.close()
    return Exit.SUCCESS


async def _serve(
    worker: Worker,
    settings: Settings,
    on_duty: Callable[[], None] | None,
    last_words: LastWords,
) -> None:
    async def ask(_: signal.Signals) -> bool:
        seconds, grace = f"{settings.drain_timeout:g} s", f"{DEFAULT_GRACE:g} s"
        announcer(settings)(
            f"draining: runs may end within {seconds}, then their tasks are ended ({grace} more "
            "for those deaf to SIGTERM) and they are given back; those that do not resume end as "
            "interrupted; again: stop now"
        )
        worker.drain()
        return True

    await stoppable(worker.run(on_duty), ask, last_words)


class RunLines:
    """A line for each run that begins and ends here, comes from another owner or goes back."""

    def __init__(self, printer: Printer) -> None:
        self._printer = printer

    async def record(self, event: RecordedEvent) -> None:
        what = _what_happened(event)
        if what is not None:
            self._printer.line(f"{clock(event.at)}  {event.run_id}  {what}")


def _what_happened(event: RecordedEvent) -> str | None:
    if event.type == "lease.taken_over":
        return f"taken over from {one_line(owner_label((event.data or {}).get('from')))}"
    if event.type == "lease.released":
        return "given back, for the next worker"
    if event.kind != "run" or event.status is None:
        return None
    return event.status + (f"  {one_line(event.message)}" if event.message else "")
