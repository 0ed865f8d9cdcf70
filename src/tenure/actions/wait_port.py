"""``wait.port``: until something listens on a port, or nothing does any more.

Asked from the process that executes the run, as its users would reach it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from tenure.actions.waiting import PATIENCE, patience_of, until
from tenure.model.errors import InvalidArguments
from tenure.model.status import HostStatus
from tenure.ports.action import CheckResult, Task, TaskResult
from tenure.ports.transport import Output, Transport
from tenure.workflow.catalogue import ActionSpec, Argument, Form
from tenure.workflow.wording import quoted

Address = tuple[int, Any]
"""Its family, and what a socket of that family calls it."""

_HERE = "localhost"
_CONNECT = 5.0
"""Seconds in which an open port takes a connection."""
_REFUSED = frozenset(
    {
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.EPIPE,
        errno.ETIMEDOUT,
        errno.EHOSTUNREACH,
        errno.EHOSTDOWN,
    }
)
"""So it is told that nobody takes connections there."""
_NO_WAY = frozenset({errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""So it is told that an address is none for this machine, as one of IPv6 often is. It says nothing
about the port; the host's other addresses do."""
_PORT = Form(called="a port from 1 to 65535", fits=lambda value: 1 <= value <= 65535)

SPEC = ActionSpec(
    name="wait.port",
    description="Wait until a TCP port takes connections, or takes none any more. Asked from the "
    "process that executes the run.",
    arguments=(
        Argument(
            name="port",
            types=("integer",),
            required=True,
            form=_PORT,
            description="The number of the port.",
        ),
        Argument(name="host", description="Name or address; the step's host if not given."),
        Argument(
            name="state",
            choices=("open", "closed"),
            description="What to wait for: `open` (if not given) or `closed`.",
        ),
        *PATIENCE,
    ),
    exports=None,
    in_process=True,
)


class _Wanted(Struct, frozen=True):
    host: str
    port: int
    state: str

    def __str__(self) -> str:
        return f"port {self.port} at {self.host}"


class WaitPort:
    spec = SPEC

    async def apply(self, task: Task, transport: Transport, output: Output) -> TaskResult:
        wanted, patience = _wanted(task), patience_of(task)
        probe = _Probe(wanted)
        if await until(probe.is_so, patience):
            await output.write("stdout", f"{wanted} is {wanted.state}\n".encode())
            return TaskResult(changed=False)
        return TaskResult(
            status=HostStatus.FAILED,
            kind="timeout",
            message=f"{wanted} was not {wanted.state}{patience.shown}: {probe.seen}",
        )

    async def check(self, task: Task, transport: Transport) -> CheckResult:
        """Asks once: to look changes nothing."""
        wanted, patience = _wanted(task), patience_of(task)
        probe = _Probe(wanted)
        if await probe.is_so():
            return CheckResult(changed=False, summary=f"{wanted} is {wanted.state} already")
        said = f"would wait until {wanted} is {wanted.state}{patience.shown}"
        return CheckResult(summary=f"{said}; now it is not: {probe.seen}")


class _Probe:
    """``seen``: what the last attempt came to, for people."""

    def __init__(self, wanted: _Wanted) -> None:
        self._wanted = wanted
        self.seen = "the first attempt has not ended"

    async def is_so(self) -> bool:
        """A port that nobody answers on counts as closed. A name that nobody knows does not, nor
        does one that cannot be asked: who has no descriptor left learns nothing about it."""
        try:
            async with asyncio.timeout(_CONNECT):
                errors = await _attempt(self._wanted.host, self._wanted.port)
        except socket.gaierror as error:
            self.seen = f"its name cannot be resolved: {error.strerror}"
            return False
        except TimeoutError:
            self.seen = "nobody answers"
            return self._wanted.state == "closed"
        if not errors:
            self.seen = "it is open"
            return self._wanted.state == "open"
        return self._is_refused(errors) and self._wanted.state == "closed"

    def _is_refused(self, errors: list[OSError]) -> bool:
        told = [error for error in errors if error.errno not in _NO_WAY] or errors
        unsure = [error for error in told if error.errno not in _REFUSED]
        self.seen = _why((unsure or told)[-1])
        if unsure:
            self.seen = f"it cannot be asked from here: {self.seen}"
        return not unsure


def _why(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


async def _attempt(host: str, port: int) -> list[OSError]:
    """What came of each address, until one took a connection: then nothing."""
    errors: list[OSError] = []
    for address in await addresses_of(host, port):
        try:
            await knock(address)
        except OSError as error:
            errors.append(error)
        else:
            return []
    return errors


async def addresses_of(host: str, port: int) -> list[Address]:
    """``gaierror``, ``InvalidArguments``."""
    loop = asyncio.get_running_loop()
    if "\0" in host:  # the system would look for what is before it
        raise InvalidArguments(f"host: {quoted(host, 80)} is no name of a host")
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError as error:  # UnicodeError among them
        raise InvalidArguments(f"host: {quoted(host, 80)} is no name of a host") from error
    return [(family, place) for family, _, _, _, place in found]


async def knock(address: Address) -> None:
    """``OSError`` if no connection is taken."""
    family, place = address
    with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as connection:
        await asyncio.get_running_loop().sock_connect(connection, place)


def _wanted(task: Task) -> _Wanted:
    host = task.args.get("host") or host_in(task.host.address)
    return _Wanted(str(host), int(task.args["port"]), str(task.args.get("state") or "open"))


def host_in(address: str) -> str:
    """Of the address of an endpoint. ``InvalidArguments``."""
    if address == "local":
        return _HERE
    try:
        host = urlsplit(address if "://" in address else f"//{address}").hostname
    except ValueError:
        host = None
    if not host:
        raise InvalidArguments(f"no host can be read from {address!r}; give one with `host`")
    return host


ACTION = WaitPort()
