"""``wait.until``: a command on the host, again and again until it succeeds."""

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

# Trying again and again until it is so.


_INTERVAL = "2s"

PATIENCE = (
    duration("interval", f"How long to wait between two attempts; {_INTERVAL} if not given."),
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
    """``InvalidArguments``."""
    return Patience(seconds_of(task, "interval", _INTERVAL) or 0, seconds_of(task, "timeout"))


async def until(attempt: Callable[[], Awaitable[bool]], patience: Patience) -> bool:
    """Whether an attempt came true in time. The last one is cut short when time is up."""
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


_FOR_GOOD = frozenset({"start", "exports"})
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
        """Does not try: nobody knows what the command would do."""
        said = await super().check(task, transport)
        return replace(said, summary=f"{said.summary}{patience_of(task).shown} (not tried now)")


class _Attempts:
    """``patient``: also with a host that cannot be reached."""

    def __init__(self, once: Callable[[], Awaitable[TaskResult]], patient: bool) -> None:
        self._once = once
        self._patient = patient
        self._count = 0
        self._unreachable: HostUnreachable | None = None
        self.result = TaskResult(status=HostStatus.FAILED, message="the first has not ended")

    async def next(self) -> bool:
        """Whether no further one is needed."""
        self._count += 1
        self._unreachable = None
        try:
            self.result = await self._once()
        except HostUnreachable as error:
            if not self._patient:
                raise
            self._unreachable = error
            return False
        return self.result.status is HostStatus.SUCCESS or self.result.kind in _FOR_GOOD

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


WAIT_PORT = WaitPort()


# ``wait.event``: what older files may name and nothing ever did.


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
