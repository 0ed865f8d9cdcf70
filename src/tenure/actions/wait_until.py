"""``wait.until``: a command on the host, again and again until it succeeds."""

from __future__ import annotations

from collections import deque
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

_HELD = 256 * 1024
_FOR_GOOD = frozenset({"start", "exports"})
"""Failures that another attempt cannot mend."""

SPEC = ActionSpec(
    name="wait.until",
    description="Run a command line with /bin/sh again and again until it exits with 0. Of its "
    "output only that of the last attempt is kept. A host that cannot be reached (it may be "
    "booting) is waited for if there is a `timeout`.",
    arguments=(CMD, *PATIENCE, *SURROUNDINGS),
    environment=True,
)


class WaitUntil(CommandAction):
    async def apply(self, task: Task, transport: Transport, output: Output) -> TaskResult:
        patience = patience_of(task)
        once = super().apply
        attempts = _Attempts(lambda held: once(task, transport, held), patience.timeout is not None)
        try:
            ended = await until(attempts.next, patience)
        finally:
            await attempts.hand_over(output)
        return attempts.result if ended else attempts.failure(patience.shown)

    async def check(self, task: Task, transport: Transport) -> CheckResult:
        """Does not try: nobody knows what the command would do."""
        said = await super().check(task, transport)
        return replace(said, summary=f"{said.summary}{patience_of(task).shown} (not tried now)")


class _Attempts:
    """``patient``: also with a host that cannot be reached."""

    def __init__(self, once: Callable[[Output], Awaitable[TaskResult]], patient: bool) -> None:
        self._once = once
        self._patient = patient
        self._count = 0
        self._held, self._held_before = _Held(), _Held()
        self._under_way = False
        self._unreachable: HostUnreachable | None = None
        self.result = TaskResult(status=HostStatus.FAILED, message="the first has not ended")

    async def next(self) -> bool:
        """Whether no further one is needed."""
        self._count += 1
        self._held_before, self._held = self._held or self._held_before, _Held()
        self._under_way, self._unreachable = True, None
        try:
            self.result = await self._once(self._held)
        except HostUnreachable as error:
            if not self._patient:
                raise
            self._unreachable = error
            return False
        self._under_way = False
        return self.result.status is HostStatus.SUCCESS or self.result.kind in _FOR_GOOD

    async def hand_over(self, output: Output) -> None:
        """What the last one printed; or one before, if it has not ended and is still silent."""
        silent = self._under_way and not self._held
        for stream, data in self._held_before if silent else self._held:
            await output.write(stream, data)

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


class _Held(deque[tuple[str, bytes]]):
    """The end of what an attempt prints."""

    def __init__(self) -> None:
        super().__init__()
        self._size = 0

    async def write(self, stream: str, data: bytes) -> None:
        kept = data[-_HELD:]
        self.append((stream, kept))
        self._size += len(kept)
        while self._size > _HELD:
            self._size -= len(self.popleft()[1])


ACTION = WaitUntil(SPEC, build, would_run("cmd", "wait until this succeeds"))
