"""``env.set``: variables for all later steps, which find them in their environment."""

from __future__ import annotations

from tenure.model.errors import InvalidArguments
from tenure.ports.execution import CheckResult, Output, Task, TaskResult, Transport
from tenure.workflow.catalogue import ActionSpec, Argument
from tenure.workflow.environment import text_of

ENV_SET_SPEC = ActionSpec(
    name="env.set",
    description="Set variables for later steps, where they are environment variables too.",
    arguments=(
        Argument(
            name="env",
            types=("object",),
            required=True,
            description="Names and values; at least one. Values become text.",
        ),
    ),
    exports="env",
    in_process=True,
)


class EnvSet:
    spec = ENV_SET_SPEC

    async def apply(self, task: Task, transport: Transport, output: Output) -> TaskResult:
        wanted = _wanted(task)
        return TaskResult(vars=wanted, changed=bool(_different(task, wanted)))

    async def check(self, task: Task, transport: Transport) -> CheckResult:
        different = _different(task, _wanted(task))
        summary = f"would set {', '.join(different)}" if different else "all set already"
        return CheckResult(changed=bool(different), summary=summary)


def _wanted(task: Task) -> dict[str, str]:
    env = task.args.get("env")
    if not isinstance(env, dict) or not env:
        raise InvalidArguments("env.set needs `env`, a map with at least one variable")
    if not all(isinstance(name, str) and name.strip() for name in env):
        raise InvalidArguments("env.set: the name of a variable must not be blank")
    return {name: text_of(value) for name, value in env.items()}


def _different(task: Task, wanted: dict[str, str]) -> list[str]:
    return [
        name for name, value in wanted.items() if name not in task.vars or task.vars[name] != value
    ]


ENV_SET = EnvSet()
