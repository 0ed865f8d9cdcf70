"""A run that a command executes: shown while it lasts, stopped by signals, told of in the end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, NamedTuple

from tenure.aio import pause
from tenure.cli.commands.callbacks import tell_of_undelivered
from tenure.cli.context import meant_run, open_for_upkeep, open_to_run, this_user
from tenure.cli.display.text import in_color, place_of, say, sign
from tenure.cli.errors import tell
from tenure.cli.exit_codes import OF_STATUS, Exit
from tenure.cli.signals import LastWords, Stopped, stoppable
from tenure.cli.streams import for_answers_only
from tenure.cli.view import Style, View, conclude, showing, whoever_reads
from tenure.config import Settings
from tenure.model.errors import LeaseLost, RunNotFound
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import Recovery
from tenure.model.update import RecordedEvent
from tenure.ports.leases import WorkerRegistry
from tenure.runner import Runner
from tenure.runtime.explain import serving
from tenure.runtime.run import StoredRun, stored_run
from tenure.workflow_file import WorkflowFile, read_workflow

# A run that was taken away from the process that executed it: what became of it.
#
# Frozen, or cut off from the store, past its lease: a process then finds that somebody else has the
# run. If that one ended it, as interrupted or canceled, the record says how, and the record is
# right.


_AGAIN = 0.1
_PATIENCE = 5.0
"""Seconds: who ends a run claims it first, and writes the end a moment later."""


async def end_of_lost_run(runner: Runner, lost: LeaseLost) -> RunSnapshot:
    """The run with the end somebody else gave it; ``lost`` again if that one goes on with it."""
    time = asyncio.get_running_loop().time
    end_by = time() + _PATIENCE
    while True:
        run = await runner.get_run(lost.run_id)
        if run.ended:
            return run
        if run.recovery is Recovery.RESUME or time() >= end_by:
            raise lost
        await pause(_AGAIN)


_REASONS = {
    signal.SIGINT: "canceled with Ctrl-C",
    signal.SIGTERM: "canceled by SIGTERM",
    signal.SIGHUP: "canceled because its terminal was closed",
}
_SOON = 1.0
_TAKEN_AWAY = (
    "this process could not renew its lease in time, and somebody else ended the run; its tasks "
    "were stopped here"
)
_SENDING = "callbacks are being sent; Ctrl-C ends the wait for them"

Work = Callable[[Runner], Coroutine[Any, Any, RunSnapshot]]


def execute(
    settings: Settings, run_id: str, work: Work, style: Style, *, tracking: bool = True
) -> int:
    """``work`` executes the run of that id; the exit code is the run's."""
    place = f"store {place_of(settings.store)}" if tracking else "not tracked"
    end = _End()
    last_words = LastWords(partial(end.tell, run_id, style, tracking=tracking))
    try:
        aside = nullcontext() if style is Style.LIVE else for_answers_only()
        with showing(style, place) as view, aside:
            watched = view._replace(recorders=(*view.recorders, end))
            execution = _execute(settings, run_id, work, watched, last_words, tracking=tracking)
            run = asyncio.run(execution)
    except Stopped:
        return last_words()
    code = conclude(run, style, place, tracked=tracking)
    if run.callbacks and tracking:
        asyncio.run(tell_of_undelivered(settings, run.run_id))
    return code


class _End:
    """Remembers how the run ended, for when the runner is stopped before it can say so."""

    def __init__(self) -> None:
        self.status: str | None = None

    async def record(self, event: RecordedEvent) -> None:
        if event.kind == "run" and event.status in OF_STATUS:
            self.status = event.status

    def tell(self, run_id: str, style: Style, *, tracking: bool) -> int:
        if self.status is None:
            later = "the next command that writes ends the run in the record" if tracking else None
            return tell(
                "stopped",
                "stopped at once",
                Exit.HARD_STOP,
                as_json=style is Style.JSON,
                facts={"run_id": run_id},
                advice=later,
            )
        if style is not Style.JSON:  # there the last event says it
            with whoever_reads():
                words = f"{sign(self.status)} {self.status}"
                say(in_color(self.status, words), err=style is Style.QUIET)
        return OF_STATUS[self.status]


async def _execute(
    settings: Settings,
    run_id: str,
    work: Work,
    view: View,
    last_words: LastWords,
    *,
    tracking: bool,
) -> RunSnapshot:
    async with open_to_run(settings, view.recorders, tracking=tracking) as runner:

        async def ask(which: signal.Signals) -> bool:
            view.notice("canceling: tasks are being ended; Ctrl-C again stops at once")
            return tracking and await _canceled(runner, run_id, _REASONS[which])

        try:
            run = await stoppable(work(runner), ask, last_words)
        except LeaseLost as lost:
            run = await end_of_lost_run(runner, lost)
            view.notice(_TAKEN_AWAY)
        if tracking:  # also for those of others, which this process took up
            asyncio.get_running_loop().call_later(_SOON, view.notice, _SENDING)
        with suppress(Stopped):  # it has ended as it did; a signal now ends the wait for callbacks
            await stoppable(runner.close(), last_words=last_words)
        return run


async def _canceled(runner: Runner, run_id: str, reason: str) -> bool:
    """Whether the run is there to be asked; before its birth there is nobody."""
    try:
        await runner.cancel(run_id, reason=reason, by=this_user())
    except RunNotFound:
        return False
    return True


# A run that is there, as commands need it that go on with it.


class Found(NamedTuple):
    stored: StoredRun
    file: WorkflowFile
    served: bool
    """Whether a worker waits for such runs."""


async def find(settings: Settings, word: str) -> Found:
    """As it stands once what dead processes left behind is marked. ``RunNotFound``; ``NotRunnable``
    if its store does not know what it executes."""
    async with open_for_upkeep(settings) as store:
        stored = await stored_run(store, await meant_run(store, word))
        workers = await store.list_workers() if isinstance(store, WorkerRegistry) else ()
    run, definition = stored
    file = read_workflow(definition.workflow, source=definition.source or "workflow")
    return Found(stored, file, bool(serving(run.queue, workers)))
