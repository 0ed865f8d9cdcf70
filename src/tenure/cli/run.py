"""``tenure run``."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress

import click

from tenure.cli.arguments import Duration, pairs
from tenure.cli.callbacks.outbox import tell_of_undelivered
from tenure.cli.callbacks.targets import checked_targets
from tenure.cli.display.paint import in_color, note, say, sign
from tenure.cli.display.places import place_of
from tenure.cli.exits import OF_STATUS, Exit
from tenure.cli.failing import tell
from tenure.cli.limiting import check_limit
from tenure.cli.loading import load_for
from tenure.cli.opening import settings_for, this_user, writing
from tenure.cli.secrets import gather, names_of
from tenure.cli.stopping import Stopped, stoppable
from tenure.cli.taken_away import end_of_lost_run
from tenure.cli.variables import variables
from tenure.cli.verb import completes, json_option, store_option, verb, workflow_options
from tenure.cli.viewing import Style, View, conclude, showing, style_of, whoever_reads
from tenure.config import Settings
from tenure.model.errors import LeaseLost, RunNotFound
from tenure.model.events import RecordedEvent
from tenure.model.snapshot import RunSnapshot
from tenure.runner import Runner, RunOptions
from tenure.system import new_run_id
from tenure.workflow_file import WorkflowFile

_REASONS = {
    signal.SIGINT: "canceled with Ctrl-C",
    signal.SIGTERM: "canceled by SIGTERM",
    signal.SIGHUP: "canceled because its terminal was closed",
}
_SOON = 1.0
_SENDING = "callbacks are being sent; Ctrl-C ends the wait for them"
_TAKEN_AWAY = (
    "this process could not renew its lease in time, and somebody else ended the run; its tasks "
    "were stopped here"
)


@verb(
    "run",
    "tenure run deploy.yaml",
    "tenure run deploy.yaml --var release=1.4 --var replicas:=3 --limit web",
    "tenure run deploy.yaml --secret db_password --label team=web --json",
)
@click.argument("workflow", metavar="FILE", shell_complete=completes("workflow_files"))
@workflow_options
@click.option("--approve", is_flag=True, help="Approve a workflow that asks for approval.")
@click.option(
    "--secret",
    "secrets",
    metavar="NAME[=@FILE]",
    multiple=True,
    help="A secret variable: from TENURE_SECRET_NAME, from NAME, from a file, or asked for.",
)
@click.option("--run-id", metavar="ID", help="Your own id for the run.")
@click.option(
    "--label", "labels", metavar="KEY=VALUE", multiple=True, help="A label to find the run by."
)
@click.option(
    "--callback",
    "callbacks",
    metavar="URL",
    multiple=True,
    help="Tell this address of every status of the run, unsigned.",
)
@click.option("--timeout", type=Duration(), metavar="2h", help="For the whole run; 0: no limit.")
@click.option("--no-tracking", is_flag=True, help="Keep no record; execute only.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing unless something goes wrong.")
@json_option
@store_option
def command(
    workflow: str,
    approve: bool,
    given: tuple[str, ...],
    vars_files: tuple[str, ...],
    secrets: tuple[str, ...],
    run_id: str | None,
    labels: tuple[str, ...],
    callbacks: tuple[str, ...],
    limit: tuple[str, ...],
    local: bool,
    timeout: float | None,
    no_tracking: bool,
    quiet: bool,
    as_json: bool,
    store: str | None,
) -> int:
    """Execute a workflow here and now, and keep its record.

    Ctrl-C cancels cleanly: tasks are ended, the record says so. A second Ctrl-C stops at once.
    With --json one line per event, and a last line with the final record. The exit code is that of
    the run: 0 success, 1 failed, 3 canceled, 4 interrupted.
    """
    if callbacks and no_tracking:
        raise click.UsageError("--no-tracking sends no callbacks; leave out --callback.")
    settings = settings_for(store)
    known = variables(vars_files, given)
    file = load_for(known.keys() | names_of(secrets), workflow)
    for text in file.notices:
        note(f"notice: {text}")
    check_limit(file.workflow, limit)
    options = RunOptions(
        run_id=run_id or new_run_id(),
        vars=known,
        secrets=gather(secrets, file.workflow.secrets),
        labels=pairs(labels, "--label"),
        callbacks=checked_targets(*({"url": url} for url in callbacks)),
        timeout=timeout,
        limit=limit,
        local=local,
        approved_by=this_user() if approve else None,
    )
    style = style_of(as_json=as_json, quiet=quiet)
    place = "not tracked" if no_tracking else f"store {place_of(settings.store)}"
    end = _End()
    try:
        with showing(style, place) as view:
            watched = view._replace(recorders=(*view.recorders, end))
            run = asyncio.run(_execute(settings, file, options, watched, tracking=not no_tracking))
    except Stopped:
        return end.tell(options.run_id, style, tracking=not no_tracking)
    code = conclude(run, style, place)
    if run.callbacks and not no_tracking:
        asyncio.run(tell_of_undelivered(settings, run.run_id))
    return code


class _End:
    """Remembers how the run ended, for when the runner is stopped before it can say so."""

    def __init__(self) -> None:
        self.status: str | None = None

    async def record(self, event: RecordedEvent) -> None:
        if event.kind == "run" and event.status in OF_STATUS:
            self.status = event.status

    def tell(self, run_id: str | None, style: Style, *, tracking: bool) -> int:
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
    settings: Settings, file: WorkflowFile, options: RunOptions, view: View, *, tracking: bool
) -> RunSnapshot:
    async with writing(settings, view.recorders, tracking=tracking) as runner:

        async def ask(which: signal.Signals) -> bool:
            view.notice("canceling: tasks are being ended; Ctrl-C again stops at once")
            return tracking and await _canceled(runner, options, _REASONS[which])

        try:
            run = await stoppable(runner.run(file, options), ask)
        except LeaseLost as lost:
            run = await end_of_lost_run(runner, lost)
            view.notice(_TAKEN_AWAY)
        if run.callbacks and tracking:
            asyncio.get_running_loop().call_later(_SOON, view.notice, _SENDING)
        with suppress(Stopped):  # it has ended as it did; a signal now ends the wait for callbacks
            await stoppable(runner.close())
        return run


async def _canceled(runner: Runner, options: RunOptions, reason: str) -> bool:
    """Whether the run is there to be asked; before its birth there is nobody."""
    try:
        await runner.cancel(options.run_id or "", reason=reason, by=this_user())
    except RunNotFound:
        return False
    return True
