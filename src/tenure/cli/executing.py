"""A run that a command executes: shown while it lasts, stopped by signals, told of in the end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

from tenure.cli.callbacks.outbox import tell_of_undelivered
from tenure.cli.display.paint import in_color, say, sign
from tenure.cli.display.places import place_of
from tenure.cli.exits import OF_STATUS, Exit
from tenure.cli.failing import tell
from tenure.cli.opening import this_user, writing
from tenure.cli.stopping import LastWords, Stopped, stoppable
from tenure.cli.streams import for_answers_only
from tenure.cli.taken_away import end_of_lost_run
from tenure.cli.viewing import Style, View, conclude, showing, whoever_reads
from tenure.config import Settings
from tenure.model.errors import LeaseLost, RunNotFound
from tenure.model.events import RecordedEvent
from tenure.model.snapshot import RunSnapshot
from tenure.runner import Runner

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
    async with writing(settings, view.recorders, tracking=tracking) as runner:

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
