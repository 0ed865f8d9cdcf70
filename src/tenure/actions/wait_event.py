"""``wait.event``: what older files may name and nothing ever did."""

from __future__ import annotations

from tenure.model.errors import InvalidArguments
from tenure.ports.action import CheckResult, Task, TaskResult
from tenure.ports.transport import Output, Transport
from tenure.workflow.catalogue import ActionSpec, Argument

_INSTEAD = "wait with wait.until for what a command can see, with wait.port for a port"

SPEC = ActionSpec(
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

    spec = SPEC

    async def apply(self, task: Task, transport: Transport, output: Output) -> TaskResult:
        raise InvalidArguments(f"wait.event is not implemented: {_INSTEAD}")

    async def check(self, task: Task, transport: Transport) -> CheckResult:
        raise InvalidArguments(f"wait.event is not implemented: {_INSTEAD}")


ACTION = WaitEvent()
