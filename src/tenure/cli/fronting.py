"""A gateway as commands run it: from settings to an address."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeVar

import click

from tenure.bootstrap import OpenStore, open_store
from tenure.cli.opening import make_room, new_runner
from tenure.cli.speaking import tell_everything
from tenure.config import Settings

_log = logging.getLogger("tenure.cli")

F = TypeVar("F", bound=Callable[..., Any])

_NEEDED = ("starlette", "uvicorn", "httptools", "prometheus_client")


class Front(NamedTuple):
    address: str
    store: OpenStore


def listen_options(function: F) -> F:
    for option in (
        click.option(
            "--allow-anyone",
            is_flag=True,
            help="Serve every client, without tokens. For closed networks.",
        ),
        click.option(
            "--listen",
            metavar="HOST:PORT",
            help="Where to be reached; port 0 is any free one.  [env: TENURE_LISTEN; default: "
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
    """A faster event loop, for a process that only serves; ``None``: the usual one."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


@asynccontextmanager
async def fronting(settings: Settings, *, allow_anyone: bool) -> AsyncIterator[Front]:
    """``NotSafe``, ``CannotListen``, and whatever opening the store raises."""
    from tenure.gatehouse import Gatehouse
    from tenure.gateway.metrics.measured import measured
    from tenure.gateway.metrics.meters import Meters
    from tenure.gateway.parts import Limits

    tell_everything(settings)
    make_room(settings)
    limits = Limits(rate=settings.gateway_rate, burst=2.0 * settings.gateway_rate)
    host, _, port = settings.listen.rpartition(":")
    meters = Meters()
    async with open_store(settings.store) as store:
        counted = measured(store, meters, asyncio.get_running_loop().time)
        async with new_runner(settings, counted) as runner:
            gatehouse = Gatehouse(
                counted, runner, limits=limits, open_to_all=allow_anyone, meters=meters
            )
            async with gatehouse.open(host.strip("[]"), int(port)) as address:
                if gatehouse.lets_in is not None:
                    _log.warning(
                        "the gateway at %s asks for no token: %s", address, gatehouse.lets_in
                    )
                yield Front(address, counted)
