"""Worker and gateway as commands run them: options, signals, draining, and a line per run."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from tenure.bootstrap import OpenStore, open_store
from tenure.cli.context import ends_with_us, make_room, must_be_able, new_runner, new_worker
from tenure.cli.display.json_lines import JsonView
from tenure.cli.display.lines import Printer
from tenure.cli.display.text import clock, one_line, place_of
from tenure.cli.exit_codes import Exit
from tenure.cli.logging import announcer, tell_everything
from tenure.cli.signals import LastWords, Stopped, stoppable
from tenure.cli.streams import for_answers_only
from tenure.config import Settings
from tenure.model.update import RecordedEvent
from tenure.ports.execution import DEFAULT_GRACE, Recorder
from tenure.ports.leases import LeaseStore
from tenure.ports.store import TokenStore
from tenure.runtime.owners import owner_label
from tenure.runtime.run import nobody_could_submit, not_servable
from tenure.system import settle_down
from tenure.worker import Worker

if TYPE_CHECKING:
    from tenure.local_tokens import AdminToken

_log = logging.getLogger("tenure.cli")

F = TypeVar("F", bound=Callable[..., Any])

_NEEDED = ("starlette", "uvicorn", "httptools", "prometheus_client")


class ServedGateway(NamedTuple):
    address: str
    store: OpenStore
    token: AdminToken | None

    @property
    def told(self) -> str:
        """What is said of it once it serves."""
        if self.token is None:
            return self.address
        is_new = "a new admin token" if self.token.is_new else "the admin token"
        return f"{self.address}; {is_new} is in {self.token.path}"


class Entry(NamedTuple):
    """Of requests: with which token, if any."""

    no_token: bool
    token_file: Path | None

    @classmethod
    def of(cls, no_token: bool, token_file: Path | None) -> Entry:
        if no_token and token_file is not None:
            raise click.UsageError("--no-token needs no --token-file. Give one of them.")
        return cls(no_token, token_file)


def listen_options(function: F) -> F:
    for option in (
        click.option(
            "--no-token",
            is_flag=True,
            help="Ask this machine for no token: every user of it may do everything.",
        ),
        click.option(
            "--token-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="PATH",
            help="Take the admin token that stands in this file.  [default: one is made if the "
            "store has none]",
        ),
        click.option(
            "--listen",
            metavar="HOST:PORT",
            help="The address to serve; port 0 is any free one.  [env: TENURE_LISTEN; default: "
            "127.0.0.1:8080]",
        ),
    ):
        function = option(function)
    return function


def missing_packages() -> list[str]:
    return [name for name in _NEEDED if find_spec(name) is None]


def how_to_install() -> str:
    return f"it needs {', '.join(missing_packages())}: pip install 'tenure[gateway]'"


def check_installed() -> None:
    if missing_packages():
        raise click.UsageError(f"The gateway cannot be started: {how_to_install()}")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """A faster event loop, for a process that only serves; ``None``: the default one."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


@asynccontextmanager
async def fronting(settings: Settings, entry: Entry) -> AsyncIterator[ServedGateway]:
    """Raises ``NotSafe``, ``CannotListen``, and the errors of opening the store."""
    from tenure.gateway.calls import Limits
    from tenure.gateway.metrics import Meters, measured
    from tenure.gateway_process import GatewayProcess
    from tenure.local_tokens import admin_token, recorded

    tell_everything(settings)
    make_room(settings)
    limits = Limits(
        rate=settings.gateway_rate,
        burst=2.0 * settings.gateway_rate,
        run_tasks=settings.gateway_run_tasks,
    )
    host, _, port = settings.listen.rpartition(":")
    meters = Meters()
    async with open_store(settings.store) as store:
        counted = measured(store, meters, asyncio.get_running_loop().time)
        async with new_runner(settings, counted) as runner:
            gatehouse = GatewayProcess(
                counted, runner, limits=limits, no_token=entry.no_token, meters=meters
            )
            async with gatehouse.open(host.strip("[]"), int(port)) as address:
                token: AdminToken | None = None
                if entry.no_token:
                    _log.warning(
                        "the gateway at %s asks for no token: every user and process of this "
                        "machine may do everything",
                        address,
                    )
                elif isinstance(counted, TokenStore):
                    token = await admin_token(counted, entry.token_file)
                try:
                    with recorded(address, token):
                        yield ServedGateway(address, counted, token)
                finally:
                    if token is not None and token.is_new and not counted.durable:
                        token.path.unlink(missing_ok=True)  # the store that knows it ends, too


Fronting = Callable[[Settings], AbstractAsyncContextManager[ServedGateway]]


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
    """Run a worker until it is told to stop; ``opening`` is printed once it serves. ``front``: a
    gateway on the same store serves until the worker has drained."""
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
            at = f"; API at {gateway.told}" if gateway is not None else ""
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
    """A line for each run that begins or ends here, is taken over or released."""

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
