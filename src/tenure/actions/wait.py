"""The waiting actions: ``wait.until`` (until a command on the host succeeds), ``wait.port`` (until
a TCP port is open or closed), and ``wait.event``, which older files may name."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from tenure.actions.arguments import SURROUNDINGS, duration, seconds_of
from tenure.actions.commands import CMD, CommandAction, build_cmd_run, would_run
from tenure.model.errors import HostUnreachable, InvalidArguments
from tenure.model.status import HostStatus
from tenure.ports.execution import CheckResult, Output, Task, TaskResult, Transport
from tenure.workflow.catalogue import ActionSpec, Argument, Form
from tenure.workflow.durations import show_duration
from tenure.workflow.wording import quoted

_DEFAULT_INTERVAL = "2s"

PATIENCE = (
    duration(
        "interval", f"How long to wait between two attempts; {_DEFAULT_INTERVAL} if not given."
    ),
    duration(
        "timeout",
        "How long to wait in all. Without it only the step's own timeout ends the waiting.",
    ),
)


class Patience(Struct, frozen=True):
    interval: float
    timeout: float | None

    @property
    def shown(self) -> str:
        return "" if self.timeout is None else f" within {show_duration(self.timeout)}"


def patience_of(task: Task) -> Patience:
    """Raises ``InvalidArguments``."""
    return Patience(
        seconds_of(task, "interval", _DEFAULT_INTERVAL) or 0, seconds_of(task, "timeout")
    )


async def until(attempt: Callable[[], Awaitable[bool]], patience: Patience) -> bool:
    """Whether an attempt succeeded in time. The last one is cancelled when time is up."""
    limit = asyncio.timeout(patience.timeout)
    try:
        async with limit:
            while not await attempt():
                await _pause(patience.interval)
    except TimeoutError:
        if not limit.expired():
            raise
        return False
    return True


async def _pause(seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


_PERMANENT = frozenset({"start", "exports"})
"""Failures that another attempt cannot mend."""

WAIT_UNTIL_SPEC = ActionSpec(
    name="wait.until",
    description="Run a command line with /bin/sh again and again until it exits with 0. What each "
    "attempt prints is in the step's output as it comes. A host that cannot be reached (it may be "
    "booting) is waited for if there is a `timeout`.",
    arguments=(CMD, *PATIENCE, *SURROUNDINGS),
    environment=True,
)


class WaitUntil(CommandAction):
    async def apply(self, task: Task, transport: Transport, output: Output) -> TaskResult:
        patience = patience_of(task)
        once = super().apply
        attempts = _Attempts(lambda: once(task, transport, output), patience.timeout is not None)
        ended = await until(attempts.next, patience)
        return attempts.result if ended else attempts.failure(patience.shown)

    async def check(self, task: Task, transport: Transport) -> CheckResult:
        """Makes no attempt: the command may have effects."""
        said = await super().check(task, transport)
        return replace(said, summary=f"{said.summary}{patience_of(task).shown} (not tried now)")


class _Attempts:
    """Repeated attempts of a command. ``patient``: also while the host cannot be reached."""

    def __init__(self, once: Callable[[], Awaitable[TaskResult]], patient: bool) -> None:
        self._once = once
        self._patient = patient
        self._count = 0
        self._unreachable: HostUnreachable | None = None
        self.result = TaskResult(status=HostStatus.FAILED, message="the first has not ended")

    async def next(self) -> bool:
        """Make an attempt; whether no further one is needed."""
        self._count += 1
        self._unreachable = None
        try:
            self.result = await self._once()
        except HostUnreachable as error:
            if not self._patient:
                raise
            self._unreachable = error
            return False
        return self.result.status is HostStatus.SUCCESS or self.result.kind in _PERMANENT

    def failure(self, when: str) -> TaskResult:
        if self._unreachable is not None:
            raise self._unreachable
        counted = f"{self._count} attempt{'s'[: self._count != 1]}"
        return TaskResult(
            status=HostStatus.FAILED,
            kind="timeout",
            exit_code=self.result.exit_code,
            message=f"not so{when}, {counted}; the last said: {self.result.message}",
        )


WAIT_UNTIL = WaitUntil(WAIT_UNTIL_SPEC, build_cmd_run, would_run("cmd", "wait until this succeeds"))


# ``wait.port``: until something listens on a port, or nothing does any more.
#
# Asked from the process that executes the run, as its users would reach it.


Address = tuple[int, Any]
"""An address family, and the address in the form of its sockets."""

_LOCALHOST = "localhost"
_CONNECT_TIMEOUT_S = 5.0
"""Time-out of a connection attempt; a port without an answer counts as closed."""
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
"""Errors that mean that no process accepts connections there."""
_NO_ROUTE = frozenset({errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""Errors that mean that this machine cannot use an address (often IPv6). They say nothing about the
port; the host's other addresses do."""
_PORT = Form(called="a port from 1 to 65535", fits=lambda value: 1 <= value <= 65535)

WAIT_PORT_SPEC = ActionSpec(
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
    spec = WAIT_PORT_SPEC

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
        """Tries once, which changes nothing."""
        wanted, patience = _wanted(task), patience_of(task)
        probe = _Probe(wanted)
        if await probe.is_so():
            return CheckResult(changed=False, summary=f"{wanted} is {wanted.state} already")
        said = f"would wait until {wanted} is {wanted.state}{patience.shown}"
        return CheckResult(summary=f"{said}; now it is not: {probe.seen}")


class _Probe:
    """Tries the port. ``seen``: the result of the last attempt, for messages."""

    def __init__(self, wanted: _Wanted) -> None:
        self._wanted = wanted
        self.seen = "the first attempt has not ended"

    async def is_so(self) -> bool:
        """Whether the port is in the wanted state. A port without an answer counts as closed; a
        name that cannot be resolved or an attempt that cannot be made (no descriptor is left) does
        not."""
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                errors = await _attempt(self._wanted.host, self._wanted.port)
        except socket.gaierror as error:
            self.seen = f"its name cannot be resolved: {error.strerror}"
            return False
        except TimeoutError:
            self.seen = "no answer"
            return self._wanted.state == "closed"
        if not errors:
            self.seen = "it is open"
            return self._wanted.state == "open"
        return self._is_refused(errors) and self._wanted.state == "closed"

    def _is_refused(self, errors: list[OSError]) -> bool:
        relevant = [error for error in errors if error.errno not in _NO_ROUTE] or errors
        unclear = [error for error in relevant if error.errno not in _REFUSED]
        self.seen = _why((unclear or relevant)[-1])
        if unclear:
            self.seen = f"it cannot be asked from here: {self.seen}"
        return not unclear


def _why(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


async def _attempt(host: str, port: int) -> list[OSError]:
    """The error of each address; empty as soon as one accepts a connection."""
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
    """Raises ``gaierror``, ``InvalidArguments``."""
    loop = asyncio.get_running_loop()
    if "\0" in host:  # the system would resolve the part before it
        raise InvalidArguments(f"host: {quoted(host, 80)} is no name of a host")
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError as error:  # UnicodeError among them
        raise InvalidArguments(f"host: {quoted(host, 80)} is no name of a host") from error
    return [(family, place) for family, _, _, _, place in found]


async def knock(address: Address) -> None:
    """Connect and disconnect; raises ``OSError``."""
    family, place = address
    with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as connection:
        await asyncio.get_running_loop().sock_connect(connection, place)


def _wanted(task: Task) -> _Wanted:
    host = task.args.get("host") or host_in(task.host.address)
    return _Wanted(str(host), int(task.args["port"]), str(task.args.get("state") or "open"))


def host_in(address: str) -> str:
    """The host of an endpoint's address. Raises ``InvalidArguments``."""
    if address == "local":
        return _LOCALHOST
    try:
        host = urlsplit(address if "://" in address else f"//{address}").hostname
    except ValueError:
        host = None
    if not host:
        raise InvalidArguments(f"no host can be read from {address!r}; give one with `host`")
    return host


WAIT_PORT = WaitPort()


# ``wait.event``: accepted in older files, but it never did anything.


_INSTEAD = "wait with wait.until for what a command can see, with wait.port for a port"

WAIT_EVENT_SPEC = ActionSpec(
    name="wait.event",
    description="Accepted from older files, where it could only fail, as it does here. Wait with "
    "`wait.until` for what a command can see, with `wait.port` for a port.",
    arguments=(Argument(name="event", types=(), description="Has no effect."),),
    exports=None,
    obsolete=_INSTEAD,
    in_process=True,
)


class WaitEvent:
    """A step that is skipped, or whose failure is tolerated, keeps its meaning."""

    spec = WAIT_EVENT_SPEC

    async def apply(self, task: Task, transport: Transport, output: Output) -> TaskResult:
        raise InvalidArguments(f"wait.event is not implemented: {_INSTEAD}")

    async def check(self, task: Task, transport: Transport) -> CheckResult:
        raise InvalidArguments(f"wait.event is not implemented: {_INSTEAD}")


WAIT_EVENT = WaitEvent()
