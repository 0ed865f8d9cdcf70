"""Actions that are one process: run it, watch its output, judge its end."""

from __future__ import annotations

import signal
from collections.abc import Callable

from msgspec.structs import replace

from tenure.actions.exports import PrintedExports, parse_exports
from tenure.actions.passing import PassingOutput
from tenure.actions.surroundings import OUTPUT_PATH, copy_of, output_limit, wants_printed_exports
from tenure.model.errors import (
    InvalidExports,
    NotStarted,
    TransportError,
)
from tenure.model.status import HostStatus
from tenure.ports.action import LET_THROUGH, CheckResult, Task, TaskResult
from tenure.ports.transport import Command, Copy, Exit, Output, Transport
from tenure.workflow.catalogue import ActionSpec

Build = Callable[[Task], Command]
"""``InvalidArguments`` if the task's arguments make no command."""


class CommandAction:
    """``summary`` says in a few words what ``build`` would run."""

    def __init__(self, spec: ActionSpec, build: Build, summary: Callable[[Task], str]) -> None:
        self.spec = spec
        self.build = build
        self._summary = summary

    async def apply(self, task: Task, transport: Transport, output: Output) -> TaskResult:
        exports = PrintedExports() if wants_printed_exports(task) else None
        copy = await copy_of(output, task)
        passing = PassingOutput(
            output, exports=exports, limit=output_limit(task), copy=copy, masks=task.masks
        )
        try:
            try:
                end = await transport.run(task.host, self.build(task), passing)
            finally:
                await passing.finish()
        except LET_THROUGH:
            raise
        except TransportError as error:
            kind = "start" if isinstance(error, NotStarted) else "transport"
            return TaskResult(status=HostStatus.FAILED, kind=kind, message=str(error))
        result = judge(end, passing.last_error_line(), exports)
        return result if copy is None else _with_copy(result, task, copy)

    async def check(self, task: Task, transport: Transport) -> CheckResult:
        self.build(task)
        return CheckResult(summary=self._summary(task))


def judge(end: Exit, last_error_line: str, printed: PrintedExports | None = None) -> TaskResult:
    """Whether a command changes anything is its own business: ``changed`` stays unknown. What it
    exported counts only if it succeeded, as ever."""
    if end.code != 0:
        how = _how(end)
        return TaskResult(
            status=HostStatus.FAILED,
            kind="signal" if end.signal is not None else "exit",
            exit_code=end.code,
            message=f"{how}: {last_error_line}" if last_error_line else how,
        )
    try:
        exported = _exported(end, printed)
    except InvalidExports as error:
        return TaskResult(status=HostStatus.FAILED, kind="exports", exit_code=0, message=str(error))
    return TaskResult(exit_code=0, vars=exported)


def _with_copy(result: TaskResult, task: Task, copy: Copy) -> TaskResult:
    """The record says where the copy is, or why it is not whole."""
    folder = task.args[OUTPUT_PATH.name]
    said = f"output in {folder}"
    if copy.problem is not None:
        said = f"not all output is in {folder}: {copy.problem}"
    return replace(result, message=f"{result.message}; {said}" if result.message else said)


def _how(end: Exit) -> str:
    if end.signal is None:
        return f"exit {end.code}"
    try:
        return f"ended by {signal.Signals(end.signal).name}"
    except ValueError:  # a signal without a name
        return f"ended by signal {end.signal}"


def _exported(end: Exit, printed: PrintedExports | None) -> dict[str, str]:
    if end.exported_cut:
        raise InvalidExports(
            f"more than {len(end.exported)} bytes were written to $TENURE_OUTPUT; "
            "export the name of a file instead"
        )
    exported = printed.finish() if printed is not None else {}
    if end.exported:
        exported.update(parse_exports(end.exported))
    return exported


def would_run(argument: str, how: str = "run") -> Callable[[Task], str]:
    """``would run:`` and the first line of that argument."""

    def summary(task: Task) -> str:
        first, *rest = task.masks.text(str(task.args[argument])).strip().splitlines() or [""]
        more = f" … ({len(rest)} more line{'s'[: len(rest) != 1]})" if rest else ""
        return f"would {how}: {first[:200]}{'…' if len(first) > 200 else ''}{more}"

    return summary
