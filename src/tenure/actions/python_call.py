"""``python.call``: a function of the program that executes the run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any

from tenure.actions.functions import call
from tenure.actions.threads import in_thread
from tenure.model.errors import InvalidArguments
from tenure.ports.action import CheckResult, Task, TaskResult
from tenure.ports.transport import Output, Transport
from tenure.workflow.catalogue import ActionSpec, Argument, Text

SPEC = ActionSpec(
    name="python.call",
    description="Call a Python function in the process that executes the run, not on the host. "
    "What it prints goes to the stderr of `tenure` (in your own application, wherever that prints) "
    "and is in no log; secrets in it are not masked.",
    arguments=(
        Argument(
            name="function",
            required=True,
            text=Text.FIXED,  # which code runs is not for variables to say
            description="package.module:name of an importable function, async or not.",
        ),
        Argument(
            name="args",
            types=("object",),
            description="Arguments by name. A dict it returns is exported as variables.",
        ),
    ),
    in_process=True,
)


class PythonCall:
    spec = SPEC

    async def apply(self, task: Task, transport: Transport, output: Output) -> TaskResult:
        name, args = _wanted(task)
        function = await _found(name)
        return await call(function, args, iscoroutinefunction(function), name, output)

    async def check(self, task: Task, transport: Transport) -> CheckResult:
        name, args = _wanted(task)
        await _found(name)
        return CheckResult(summary=f"would call {name}({', '.join(args)})")


def _wanted(task: Task) -> tuple[str, dict[str, Any]]:
    args = task.args.get("args")
    if args is not None and not isinstance(args, dict):
        raise InvalidArguments("python.call: args must be a map of arguments by name")
    return str(task.args.get("function", "")), args or {}


async def _found(name: str) -> Callable[..., Any]:
    module_name, separator, path = name.partition(":")
    if not separator or not module_name or not path:
        raise InvalidArguments(f"function: {name!r} is not of the form package.module:name")
    module = sys.modules.get(module_name)
    if module is None:
        # Importing may read many files, and run anything.
        module = await in_thread(lambda: _imported(module_name), f"import {module_name}")
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part, None)
    if not callable(value):
        raise InvalidArguments(f"function: {module_name} has no function {path!r}")
    return value  # type: ignore[no-any-return]


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except Exception as error:
        raise InvalidArguments(
            f"function: {name} cannot be imported here ({type(error).__name__}: {error})"
        ) from error


ACTION = PythonCall()
