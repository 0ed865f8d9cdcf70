"""What a step does on one host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from tenure.model.errors import HostUnreachable, LeaseLost, StillRunning, Untrusted
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import HostStatus
from tenure.model.update import RecordedEvent
from tenure.workflow.catalogue import ActionSpec

# How a host is reached.


DEFAULT_GRACE = 5.0
"""Seconds between TERM and KILL."""


class Endpoint(Struct, frozen=True, kw_only=True):
    """A host as a transport sees it."""

    name: str
    address: str
    """``local``, ``ssh://user@host:port``, ``http://host:port``."""


class Command(Struct, frozen=True, kw_only=True):
    """A process to start. Nothing in it passes through a shell on the way."""

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    """Added to the environment the host gives its processes."""
    stdin: bytes = b""
    cwd: str | None = None
    become: str | None = None
    grace: float = DEFAULT_GRACE
    """When it is ended early."""


class Exit(Struct, frozen=True, kw_only=True):
    """How a process ended. ``code`` as a shell shows it: 128 + n for signal n."""

    code: int
    signal: int | None = None
    exported: bytes = b""
    """What it wrote to the file named by ``$TENURE_OUTPUT``; bounded."""
    exported_cut: bool = False


class Output(Protocol):
    """Takes what a process prints, as it comes."""

    async def write(self, stream: str, data: bytes) -> None:
        """``stream`` is ``stdout`` or ``stderr``. Waits while whoever keeps it is behind, so that
        memory stays bounded whatever is printed."""
        ...


class Copy(Output, Protocol):
    """Files that take what is written here."""

    @property
    def problem(self) -> str | None:
        """Why not all of it could be written, if so."""
        ...


@runtime_checkable
class CopiedOutput(Protocol):
    """An ``Output`` that may be had in files as well."""

    async def copy_into(self, folder: str) -> Copy:
        """New files in ``folder`` (made if it is not there) of the machine that executes the run,
        closed together with this output. ``OSError`` if there cannot be any."""
        ...


class Transport(Protocol):
    """Starts processes on hosts."""

    async def run(self, host: Endpoint, command: Command, output: Output) -> Exit:
        """Run to the end, all output handed over before this returns.

        ``HostUnreachable`` if the host cannot be contacted; ``NotStarted`` if it refuses the
        command; ``StillRunning`` in place of ``CancelledError`` if nothing confirmed its end.
        Cancelling the call ends the whole process tree (TERM, grace, KILL) before
        ``CancelledError`` comes out. A descendant that keeps the pipes open after its parent has
        ended is not waited for longer than the grace period.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and helpers."""
        ...


class LocalTasks(Struct, frozen=True, kw_only=True):
    """How tasks on the machine that executes the run are started there."""

    groups: bool = True
    """Each in a control group of its own, where the system allows it."""
    pass_env: tuple[str, ...] | None = None
    """Variables of the executing process that tasks get besides the usual ones (``PATH``, ``HOME``,
    ``LANG`` and the like); ``None``: all but Tenure's own. What the workflow gives they always
    get."""
    user: str | None = None
    """As whom, where the executing process is root."""


# Takes the secrets of a run out of what is shown.
#
# Whoever shortens or tidies text masks it first: half a secret, or one whose tab became a blank, is
# no longer recognised by those who mask afterwards.


class MaskingStream(Protocol):
    """One stream, chunk by chunk; what may be the beginning of a secret is held back."""

    def feed(self, data: bytes) -> bytes:
        """What is now known to be fit to be seen."""
        ...

    def finish(self) -> bytes:
        """The rest: nothing follows that could complete a secret."""
        ...


class Masking(Protocol):
    def text(self, text: str) -> str: ...

    def data(self, data: bytes, *, cut: bool = False) -> bytes:
        """``cut``: it went on; what may be the beginning of a secret at its end is left out."""
        ...

    def stream(self) -> MaskingStream: ...


class NothingSecret:
    """``Masking`` where there are no secrets."""

    def text(self, text: str) -> str:
        return text

    def data(self, data: bytes, *, cut: bool = False) -> bytes:
        return data

    def stream(self) -> MaskingStream:
        return _Plain()


class _Plain:
    def feed(self, data: bytes) -> bytes:
        return data

    def finish(self) -> bytes:
        return b""


NOTHING_SECRET = NothingSecret()


LET_THROUGH = (LeaseLost, HostUnreachable, StillRunning, Untrusted)
"""What is no failure of an action: whoever runs it knows what these mean."""


class Task(Struct, frozen=True, kw_only=True):
    """One action on one host for one item and attempt, with everything rendered."""

    task_id: str
    """The same for the same run, step, host, item and attempt, whoever executes it."""
    run_id: str
    step: str
    step_index: int
    host: Endpoint
    action: str
    args: dict[str, Any] = {}
    env: dict[str, str] = {}
    """Variables for processes; empty for actions that start none."""
    vars: Mapping[str, Any] = {}
    """Every variable this host sees."""
    item: int | None = None
    attempt: int = 1
    fence: int = 0
    folder: str | None = None
    """Where the workflow file is: files an action needs, and that did not travel with the run, are
    looked up from here; ``None``: there is no such place."""
    files: Mapping[str, bytes] = {}
    """Those that travelled with the run, by the names the arguments give them."""
    become: str | None = None
    masks: Masking = NOTHING_SECRET
    """Know the run's secrets. What an action prints and says is masked anyway; what it shortens or
    tidies before, it masks first."""


class TaskResult(Struct, frozen=True, kw_only=True):
    """How it ended. Status is success, failed, unreachable or skipped."""

    status: HostStatus = HostStatus.SUCCESS
    message: str | None = None
    kind: str | None = None
    """Of a failure, for programs: ``exit``, ``exception``, ``arguments`` …"""
    exit_code: int | None = None
    changed: bool | None = None
    vars: dict[str, Any] = {}
    """Exported to later steps."""


class CheckResult(Struct, frozen=True, kw_only=True):
    """What ``apply`` would do. ``changed`` ``None``: cannot be known without doing it."""

    changed: bool | None = None
    summary: str = ""
    diff: str | None = None


class Action(Protocol):
    @property
    def spec(self) -> ActionSpec: ...

    async def apply(self, task: Task, transport: Transport, output: Output) -> TaskResult:
        """Do it. An exception is a failure with its text as message; being cancelled means
        stop now, leave nothing running."""
        ...

    async def check(self, task: Task, transport: Transport) -> CheckResult:
        """Find out what ``apply`` would do, changing nothing."""
        ...


# Looking on while a run executes.


class OutputChunk(Struct, frozen=True, gc=False, kw_only=True):
    run_id: str
    step_index: int
    step: str
    host: str
    stream: str
    data: bytes


class Recorder(Protocol):
    """Gets every event of a run exactly as the journal holds it, in the same order, once it is
    durable, from the run's birth to the last word of the process that executes it. Of a run
    that was taken over, from the claim on.

    What others write meanwhile (a cancel request, an approval, an annotation) comes before the next
    event of the owner, provided that the store keeps a journal (``EventLog``) that can be read.
    What is written after the run's end, or by a new owner, is not recorded here. Raising is logged
    and changes nothing.
    """

    async def record(self, event: RecordedEvent) -> None: ...


@runtime_checkable
class RunBeginning(Protocol):
    """A recorder that also wants to know the plan before the first event."""

    def begin(self, planned: RunSnapshot) -> None: ...


@runtime_checkable
class OutputRecorder(Protocol):
    """A recorder that also wants what tasks print, as it comes. Must be quick: it is not waited
    for."""

    def output(self, chunk: OutputChunk) -> None: ...


# How long what runs for a run may be trusted to be its owner's.


@runtime_checkable
class TrustWindows(Protocol):
    """A transport that ends a run's processes by itself when the run's owner fell silent.

    The owner says how long it may still be trusted, each time that changes. If it says nothing more
    (it was killed, or frozen), the processes end without it, and until it is trusted again nothing
    of the run is started.
    """

    def trust(self, run_id: str, until: float, margin: float) -> None:
        """``until`` is a moment of ``time.monotonic`` (an event loop's ``time()``); ``inf``: there
        is no lease that could end. Processes are told to end then, and are gone ``margin`` seconds
        later. The last word counts. From any thread; never waits.
        """
        ...

    def forget(self, run_id: str) -> None:
        """The run has ended here: it will neither be trusted nor distrusted again."""
        ...
