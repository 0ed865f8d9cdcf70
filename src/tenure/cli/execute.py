"""Executing a run in a command: shown while it lasts, stopped by signals, concluded at the end."""

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
from tenure.cli.view import Style, View, closed_output_ignored, conclude, showing
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

# A run that was taken away from this process.
#
# After being frozen, or cut off from the store, past its lease, a process finds that the run has
# another owner. If that owner ended it, as interrupted or canceled, the record is right.


_POLL_INTERVAL_S = 0.1
_END_TIMEOUT_S = 5.0
"""An owner claims a run first, and writes its end a moment later."""


async def end_of_lost_run(runner: Runner, lost: LeaseLost) -> RunSnapshot:
    """The run as ended by another owner; raises ``lost`` again if that owner continues it."""
    time = asyncio.get_running_loop().time
    end_by = time() + _END_TIMEOUT_S
    while True:
        run = await runner.get_run(lost.run_id)
        if run.ended:
            return run
        if run.recovery is Recovery.RESUME or time() >= end_by:
            raise lost
        await pause(_POLL_INTERVAL_S)


# Executing.

_REASONS = {
    signal.SIGINT: "canceled with Ctrl-C",
    signal.SIGTERM: "canceled by SIGTERM",
    signal.SIGHUP: "canceled because its terminal was closed",
}
_NOTICE_DELAY_S = 1.0
_TAKEN_AWAY = (
    "this process could not renew its lease in time, and another process ended the run; its tasks "
    "were stopped here"
)
_SENDING = "callbacks are being sent; Ctrl-C ends the wait for them"

Work = Callable[[Runner], Coroutine[Any, Any, RunSnapshot]]


def execute(
    settings: Settings, run_id: str, work: Work, style: Style, *, tracking: bool = True
) -> int:
    """Execute a run with ``work``; returns the run's exit code."""
    place = f"store {place_of(settings.store)}" if tracking else "not tracked"
    end = _EndRecorder()
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


class _EndRecorder:
    """Remembers how the run ended, in case the runner is stopped before it returns."""

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
        if style is not Style.JSON:  # its last event says it
            with closed_output_ignored():
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
        if tracking:  # also for the callbacks of resumed runs
            asyncio.get_running_loop().call_later(_NOTICE_DELAY_S, view.notice, _SENDING)
        with suppress(Stopped):  # the run has ended; a signal now ends the wait for callbacks
            await stoppable(runner.close(), last_words=last_words)
        return run


async def _canceled(runner: Runner, run_id: str, reason: str) -> bool:
    """Whether the cancel request was stored; false before the run is created."""
    try:
        await runner.cancel(run_id, reason=reason, by=this_user())
    except RunNotFound:
        return False
    return True


# Existing runs, for commands that continue them.


class ExistingRun(NamedTuple):
    stored: StoredRun
    file: WorkflowFile
    served: bool
    """Whether a live worker serves its queue."""


async def find(settings: Settings, word: str) -> ExistingRun:
    """The run, after runs of dead processes were marked. ``RunNotFound``; ``NotRunnable`` if the
    store does not have its definition."""
    async with open_for_upkeep(settings) as store:
        stored = await stored_run(store, await meant_run(store, word))
        workers = await store.list_workers() if isinstance(store, WorkerRegistry) else ()
    run, definition = stored
    file = read_workflow(definition.workflow, source=definition.source or "workflow")
    return ExistingRun(stored, file, bool(serving(run.queue, workers)))
