"""``wait.until``: a command on the host, again and again until it succeeds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from tenure.actions.cmd_run import CMD, build
from tenure.actions.commands import CommandAction, would_run
from tenure.actions.surroundings import SURROUNDINGS
from tenure.actions.waiting import PATIENCE, patience_of, until
from tenure.model.errors import HostUnreachable
from tenure.model.status import HostStatus
from tenure.ports.action import CheckResult, Task, TaskResult
from tenure.ports.transport import Output, Transport
from tenure.workflow.catalogue import ActionSpec

_FOR_GOOD = frozenset({"start", "exports"})
"""Failures that another attempt cannot mend."""

SPEC = ActionSpec(
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


ACTION = WaitUntil(SPEC, build, would_run("cmd", "wait until this succeeds"))
