"""Actions that put a file on a host: look, and do only what is missing."""

from __future__ import annotations

from collections.abc import Callable

from tenure.actions.differences import LARGEST, difference, is_text
from tenure.actions.file_modes import show_mode
from tenure.actions.host_files import FoundFile, WantedFile, look_at, put, set_mode
from tenure.actions.threads import in_thread
from tenure.model.errors import TransportError
from tenure.model.status import HostStatus
from tenure.ports.action import LET_THROUGH, CheckResult, Task, TaskResult
from tenure.ports.transport import Output, Transport
from tenure.workflow.catalogue import ActionSpec, Argument

DEST = Argument(
    name="dest",
    required=True,
    in_sight=True,
    description="Path on the host; folders above it are made. `~/` is the home of the task's user; "
    "a relative path begins where the host's commands do.",
)

Want = Callable[[Task], WantedFile]
"""May read files and take its time. ``InvalidArguments``, ``ExpressionError``."""


class PlacingAction:
    """``want`` says what file is wanted where."""

    def __init__(self, spec: ActionSpec, want: Want) -> None:
        self.spec = spec
        self._want = want

    async def apply(self, task: Task, transport: Transport, output: Output) -> TaskResult:
        wanted = await self._wanted(task)
        try:
            done = await _place(task, transport, wanted)
        except LET_THROUGH:
            raise
        except TransportError as error:
            return TaskResult(status=HostStatus.FAILED, kind="file", message=str(error))
        if done:
            await output.write("stdout", f"{done}\n".encode(errors="surrogateescape"))
        return TaskResult(changed=bool(done))

    async def check(self, task: Task, transport: Transport) -> CheckResult:
        wanted = await self._wanted(task)
        found = await look_at(task, transport, wanted, shown=LARGEST)
        return await in_thread(lambda: foreseen(wanted, found), f"compare for {task.task_id}")

    async def _wanted(self, task: Task) -> WantedFile:
        return await in_thread(lambda: self._want(task), f"prepare {task.task_id}")


async def _place(task: Task, transport: Transport, wanted: WantedFile) -> str:
    """What was done; nothing if nothing was to be done."""
    found = await look_at(task, transport, wanted)
    if not found.same:
        await put(task, transport, wanted, found)
        return f"wrote {found.place}, {_size(wanted)}"
    if wanted.mode is None or wanted.mode == found.mode:
        return ""
    await set_mode(task, transport, wanted, found, wanted.mode)
    return f"set the mode of {found.place} to {show_mode(wanted.mode)}"


def foreseen(wanted: WantedFile, found: FoundFile) -> CheckResult:
    mode = _mode_change(wanted, found)
    if found.same and not mode:
        return CheckResult(changed=False, summary=f"{found.place} is as wanted")
    if found.same:
        return CheckResult(changed=True, summary=f"would change {found.place}{mode}")
    present = found.content if found.exists else b""
    diff = None if present is None else difference(present, wanted.content, found.place)
    summary = f"would {_verb(found)} {found.place}, {_size(wanted)}{mode}"
    if diff is None and wanted.content:
        summary += _why_not_shown(wanted, found)
    return CheckResult(changed=True, summary=summary, diff=diff)


def _verb(found: FoundFile) -> str:
    if found.link:
        return "put a file in place of the link"
    return "change" if found.exists else "make"


def _size(wanted: WantedFile) -> str:
    length = len(wanted.content)
    return f"{length} byte{'s'[: length != 1]}"


def _mode_change(wanted: WantedFile, found: FoundFile) -> str:
    if wanted.mode is None or wanted.mode == found.mode:
        return ""
    now = f" (now {show_mode(found.mode)})" if found.mode is not None else ""
    return f", mode {show_mode(wanted.mode)}{now}"


def _why_not_shown(wanted: WantedFile, found: FoundFile) -> str:
    if not found.readable:
        return "; what is there cannot be read"
    texts = (wanted.content, found.content or b"")
    return "; too long to show" if all(map(is_text, texts)) else "; not text"
