"""``tenure run``."""

from __future__ import annotations

import asyncio
import signal

import click

from tenure.cli.arguments import Duration, pairs
from tenure.cli.display.paint import in_color, note, say, sign
from tenure.cli.display.places import place_of
from tenure.cli.exits import OF_STATUS, Exit
from tenure.cli.opening import settings_for, this_user, writing
from tenure.cli.secrets import gather
from tenure.cli.stopping import Stopped, stoppable
from tenure.cli.variables import variables
from tenure.cli.verb import completes, json_option, store_option, verb, workflow_options
from tenure.cli.viewing import View, conclude, showing, style_of
from tenure.config import Settings
from tenure.model.errors import RunNotFound
from tenure.model.events import RecordedEvent
from tenure.model.snapshot import RunSnapshot
from tenure.runner import Runner, RunOptions
from tenure.system import new_run_id
from tenure.workflow_file import WorkflowFile, load_workflow

_REASONS = {
    signal.SIGINT: "canceled with Ctrl-C",
    signal.SIGTERM: "canceled by SIGTERM",
    signal.SIGHUP: "canceled because its terminal was closed",
}


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
@click.option("--timeout", type=Duration(), metavar="2h", help="For the whole run.")
@click.option("--no-tracking", is_flag=True, help="Keep no record; execute only.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing unless something goes wrong.")
@json_option
@store_option
def command(
    workflow: str,
    approve: bool,
    given: tuple[str, ...],
    files: tuple[str, ...],
    secrets: tuple[str, ...],
    run_id: str | None,
    labels: tuple[str, ...],
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
    settings = settings_for(store)
    file = load_workflow(workflow)
    for text in file.notices:
        note(f"notice: {text}")
    options = RunOptions(
        run_id=run_id or new_run_id(),
        vars=variables(files, given),
        secrets=gather(secrets, file.workflow.secrets),
        labels=pairs(labels, "--label"),
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
        return end.tell(options, tracking=not no_tracking)
    return conclude(run, style, place)


class _End:
    """Remembers how the run ended, for when the runner is stopped before it can say so."""

    def __init__(self) -> None:
        self.status: str | None = None

    async def record(self, event: RecordedEvent) -> None:
        if event.kind == "run" and event.status in OF_STATUS:
            self.status = event.status

    def tell(self, options: RunOptions, *, tracking: bool) -> int:
        if self.status is not None:
            say(in_color(self.status, f"{sign(self.status)} {self.status}"))
            return OF_STATUS[self.status]
        say("stopped at once", err=True)
        if tracking:
            note(f"the next command that writes ends run {options.run_id} in the record")
        return Exit.HARD_STOP


async def _execute(
    settings: Settings, file: WorkflowFile, options: RunOptions, view: View, *, tracking: bool
) -> RunSnapshot:
    async with writing(settings, view.recorders, tracking=tracking) as runner:

        async def ask(which: signal.Signals) -> bool:
            view.notice("canceling: tasks are being ended; Ctrl-C again stops at once")
            return tracking and await _canceled(runner, options, _REASONS[which])

        return await stoppable(runner.run(file, options), ask)


async def _canceled(runner: Runner, options: RunOptions, reason: str) -> bool:
    """Whether the run is there to be asked; before its birth there is nobody."""
    try:
        await runner.cancel(options.run_id or "", reason=reason, by=this_user())
    except RunNotFound:
        return False
    return True
