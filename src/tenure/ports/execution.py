"""What a step does on one host: transports, actions, output, secret masking and recorders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from tenure.model.errors import (
    HostUnreachable,
    LeaseLost,
    StillRunning,
    SupervisorLost,
    Untrusted,
)
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import HostStatus
from tenure.model.update import RecordedEvent
from tenure.workflow.catalogue import ActionSpec

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
    """Seconds between TERM and KILL when it is ended early."""


class Exit(Struct, frozen=True, kw_only=True):
    """How a process ended. ``code`` as a shell shows it: 128 + n for signal n."""

    code: int
    signal: int | None = None
    exported: bytes = b""
    """What it wrote to the file named by ``$TENURE_OUTPUT``; bounded."""
    exported_cut: bool = False


class Output(Protocol):
    """Receives what a process prints, as it comes."""

    async def write(self, stream: str, data: bytes) -> None:
        """``stream`` is ``stdout`` or ``stderr``. Waits while the receiver is behind, so that
        memory stays bounded whatever is printed."""
        ...


@runtime_checkable
class CutOutput(Protocol):
    """An ``Output`` that remembers whether something was left out before it came here."""

    def note_cut(self) -> None: ...


class Copy(Output, Protocol):
    """A copy of an output, written to files."""

    @property
    def problem(self) -> str | None:
        """Why the copy is incomplete; ``None`` if it is complete."""
        ...


@runtime_checkable
class CopiedOutput(Protocol):
    """An ``Output`` that can be copied to files as well."""

    async def copy_into(self, folder: str) -> Copy:
        """Create files in ``folder`` (made if missing) on the machine that executes the run; they
        are closed together with this output. ``OSError`` if they cannot be created."""
        ...


class Transport(Protocol):
    """Starts processes on hosts."""

    async def run(self, host: Endpoint, command: Command, output: Output) -> Exit:
        """Run to the end; all output has been passed on before this returns.

        ``HostUnreachable`` if the host cannot be contacted; ``NotStarted`` if it refuses the
        command; ``StillRunning`` in place of ``CancelledError`` if nothing confirmed its end.
        Cancelling the call ends the whole process tree (TERM, grace, KILL) before
        ``CancelledError`` is raised. A descendant that keeps the pipes open after its parent has
        ended is not waited for longer than the grace period.
        """
        ...

    async def close(self) -> None:
        """Release connections and helper processes."""
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


@runtime_checkable
class Contacts(Protocol):
    """A ``Transport`` that can find out whether a host can be contacted, changing nothing there."""

    async def contact(self, host: Endpoint) -> None:
        """``HostUnreachable``."""
        ...


# Masking of secrets. Code that shortens or tidies text must mask it first: half a secret, or one
# whose tab became a blank, is no longer recognised afterwards.


class MaskingStream(Protocol):
    """Masks one stream, chunk by chunk; the possible beginning of a secret is held back."""

    def feed(self, data: bytes) -> bytes:
        """The part that may be shown now."""
        ...

    def finish(self) -> bytes:
        """The rest, at the end of the stream."""
        ...


class Masking(Protocol):
    def text(self, text: str) -> str: ...

    def data(self, data: bytes, *, cut: bool = False) -> bytes:
        """``cut``: truncated data; a possible beginning of a secret at its end is removed."""
        ...

    def stream(self) -> MaskingStream: ...


class NothingSecret:
    """``Masking`` for a run without secrets."""

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


LET_THROUGH = (LeaseLost, HostUnreachable, StillRunning, SupervisorLost, Untrusted)
"""Errors that are no failure of an action: they pass through to the code that runs it."""


class Task(Struct, frozen=True, kw_only=True):
    """One action on one host for one item and attempt, with all expressions rendered."""

    task_id: str
    """The same for the same run, step, host, item and attempt, in every process."""
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
    """Folder of the workflow file: files that an action needs and that did not travel with the run
    are looked up from here; ``None``: there is no such folder."""
    files: Mapping[str, bytes] = {}
    """Files that travelled with the run, by the names used in the arguments."""
    become: str | None = None
    masks: Masking = NOTHING_SECRET
    """Masks the run's secrets. Output and messages of an action are masked anyway; an action that
    shortens or tidies text must mask it first."""


class TaskResult(Struct, frozen=True, kw_only=True):
    """How a task ended. Status is success, failed, unreachable or skipped."""

    status: HostStatus = HostStatus.SUCCESS
    message: str | None = None
    kind: str | None = None
    """Of a failure, for programs: ``exit``, ``exception``, ``arguments`` …"""
    exit_code: int | None = None
    changed: bool | None = None
    vars: dict[str, Any] = {}
    """Exported to later steps."""


class CheckResult(Struct, frozen=True, kw_only=True):
    """What ``apply`` would do. ``changed`` is ``None`` if that cannot be known in advance."""

    changed: bool | None = None
    summary: str = ""
    diff: str | None = None


class Action(Protocol):
    @property
    def spec(self) -> ActionSpec: ...

    async def apply(self, task: Task, transport: Transport, output: Output) -> TaskResult:
        """Execute the task. An exception is a failure with its text as message; on cancellation,
        stop at once and leave nothing running."""
        ...

    async def check(self, task: Task, transport: Transport) -> CheckResult:
        """Find out what ``apply`` would do, without changing anything."""
        ...


class OutputChunk(Struct, frozen=True, gc=False, kw_only=True):
    run_id: str
    step_index: int
    step: str
    host: str
    stream: str
    data: bytes


class Recorder(Protocol):
    """Gets every event of a run exactly as the journal holds it, in the same order, once it is
    durable, from creation to the last event of the process that executes it. After a takeover: from
    the claim on.

    Events by others (a cancel request, an approval, an annotation) come before the owner's next
    event, provided that the store keeps a readable journal (``EventLog``). Events after the run's
    end, or by a new owner, are not recorded. An exception is logged and changes nothing.
    """

    async def record(self, event: RecordedEvent) -> None: ...


@runtime_checkable
class RunBeginning(Protocol):
    """A recorder that also wants to know the plan before the first event."""

    def begin(self, planned: RunSnapshot) -> None: ...


@runtime_checkable
class OutputRecorder(Protocol):
    """A recorder that also wants the output of tasks, as it comes. Must be quick: the call blocks
    the event loop."""

    def output(self, chunk: OutputChunk) -> None: ...


@runtime_checkable
class TrustWindows(Protocol):
    """A transport that ends a run's processes by itself when the run's owner falls silent.

    The owner reports until when it may be trusted, each time that changes. Without a new report (it
    was killed, or frozen) the processes are ended, and nothing of the run is started until it is
    trusted again.
    """

    def trust(self, run_id: str, until: float, margin: float) -> None:
        """``until`` is a moment of ``time.monotonic`` (an event loop's ``time()``); ``inf`` without
        a lease. Processes are told to end at that moment and are gone ``margin`` seconds later. The
        newest call wins. Thread-safe; never waits.
        """
        ...

    def forget(self, run_id: str) -> None:
        """The run has ended in this process: drop its entry."""
        ...
