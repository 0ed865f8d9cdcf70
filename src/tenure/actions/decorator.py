"""Own actions from Python functions.

    @tenure.action("billing.close")
    async def close(account: str, dry_run: bool = False) -> dict[str, str]:
        ...

The function stays what it was. Its parameters are the arguments of the step; one annotated with
``Task``, ``Transport`` or ``Output`` gets that instead. It returns nothing, a dict of variables for
later steps, or a ``TaskResult``; an exception is a failure. A plain function runs in a thread and
cannot be ended early: prefer ``async def``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from tenure.actions.builtin import MODULES
from tenure.actions.functions import call
from tenure.actions.signature import name_of, signature_of
from tenure.model.errors import InvalidAction
from tenure.ports.action import CheckResult, Task, TaskResult
from tenure.ports.transport import Output, Transport
from tenure.workflow.catalogue import ActionSpec

F = TypeVar("F", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*", re.ASCII)

DECLARED: dict[str, FunctionAction] = {}
"""Of this process. Registries look here each time, so the order of imports does not matter."""


class FunctionAction:
    """A function as an action."""

    __slots__ = ("_awaited", "_supplied", "function", "spec")

    def __init__(
        self, name: str, function: Callable[..., Any], on_takeover: str | None = None
    ) -> None:
        self.function = function
        self._awaited = iscoroutinefunction(function)
        self.spec: ActionSpec
        self.spec, self._supplied = signature_of(name, function, on_takeover=on_takeover)

    def apply(
        self, task: Task, transport: Transport, output: Output
    ) -> Coroutine[Any, Any, TaskResult]:
        args = task.args
        if self._supplied:
            here = {"task": task, "transport": transport, "output": output}
            args = {**args, **{name: here[what] for name, what in self._supplied.items()}}
        return call(self.function, args, self._awaited, self.spec.name, output)

    def __str__(self) -> str:
        return name_of(self.function)

    async def check(self, task: Task, transport: Transport) -> CheckResult:
        return CheckResult(summary=f"would call {self.spec.name}({', '.join(task.args)})")


def action(name: str, *, on_takeover: str | None = None) -> Callable[[F], F]:
    """Offer the function below as an action. ``InvalidAction`` if that cannot be."""
    if not isinstance(name, str):
        raise InvalidAction('an action needs a name: @action("billing.close")')
    if not _NAME.fullmatch(name):
        raise InvalidAction(f"{name!r} is no name for an action; one is like billing.close")

    def declare(function: F) -> F:
        before = DECLARED.get(name)
        if name in MODULES:
            raise InvalidAction(f"action {name!r} is one of Tenure's own; choose another name")
        # A module that is loaded again declares its actions again.
        if before is not None and name_of(before.function) != name_of(function):
            raise InvalidAction(f"action {name!r} is taken by {before}; choose another name")
        DECLARED[name] = FunctionAction(name, function, on_takeover)
        return function

    return declare
