"""Which actions there are."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from inspect import isclass, iscoroutinefunction, isfunction, ismodule
from typing import Any, TypeVar

from tenure.actions.python import call, name_of, signature_of
from tenure.model.errors import InvalidAction, UnknownAction
from tenure.ports.execution import Action, CheckResult, Output, Task, TaskResult, Transport
from tenure.workflow.catalogue import ActionSpec, Catalogue
from tenure.workflow.wording import did_you_mean

# Tenure's own actions, by name. Each module holds its action as ``ACTION``.


MODULES = {
    "cmd.run": "tenure.actions.commands",
    "shell.run": "tenure.actions.commands",
    "script.shell": "tenure.actions.commands",
    "script.python": "tenure.actions.commands",
    "env.set": "tenure.actions.env",
    "template.render": "tenure.actions.files",
    "file.copy": "tenure.actions.files",
    "http.request": "tenure.actions.http",
    "wait.until": "tenure.actions.wait",
    "wait.port": "tenure.actions.wait",
    "wait.event": "tenure.actions.wait",
    "python.call": "tenure.actions.python",
}


# Own actions from Python functions.
#
#     @tenure.action("billing.close")
#     async def close(account: str, dry_run: bool = False) -> dict[str, str]:
#         ...
#
# The function stays what it was. Its parameters are the arguments of the step; one annotated with
# ``Task``, ``Transport`` or ``Output`` gets that instead. It returns nothing, a dict of variables
# for later steps, or a ``TaskResult``; an exception is a failure. A plain function runs in a thread
# and cannot be ended early: prefer ``async def``.


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


ENTRY_POINTS = "tenure.actions"

_log = logging.getLogger("tenure")


def own_action(name: str) -> Action:
    """``cmd.run`` is ``CMD_RUN`` in its module, which is imported now."""
    found: Action = getattr(import_module(MODULES[name]), name.replace(".", "_").upper())
    return found


class ActionRegistry(Mapping[str, Action]):
    """Actions by name: what was registered here, Tenure's own, those declared with ``@action``,
    and those of installed packages.

    A package names under the entry-point group ``tenure.actions`` an action, a class of one, or a
    module whose functions are decorated. Packages are loaded when a name is asked for that nothing
    else offers, or when all are listed. One that cannot be loaded is reported, once, and does not
    harm the others.
    """

    def __init__(
        self, python_modules: Sequence[str] | None = None, *, plugins: bool = True
    ) -> None:
        """``python_modules``: as for ``PythonCall``."""
        self._actions: dict[str, Action] = {}
        if python_modules is not None:
            from tenure.actions.python import PYTHON_CALL_SPEC, PythonCall

            self._actions[PYTHON_CALL_SPEC.name] = PythonCall(python_modules)
        self._failed: list[str] = []
        self._plugins_wanted = plugins

    def register(self, action: Action) -> None:
        """``InvalidAction`` if its name is taken."""
        name = action.spec.name
        if name in MODULES:
            raise InvalidAction(f"action {name!r} is one of Tenure's own; choose another name")
        taken = self._taken(name)
        if taken is not None:
            raise InvalidAction(f"action {name!r} is taken by {taken}; choose another name")
        self._actions[name] = action

    def catalogue(self) -> Catalogue:
        """What is known of them before anything runs."""
        return {name: action.spec for name, action in self.items()}

    def __getitem__(self, name: str) -> Action:
        found = self._taken(name)
        if found is not None:
            return found
        if name in MODULES:
            own = own_action(name)
            self._actions[name] = own
            return own
        if self._load_plugins():
            return self[name]
        raise UnknownAction(self._not_found(name))

    def __iter__(self) -> Iterator[str]:
        self._load_plugins()
        return iter(sorted({*self._actions, *DECLARED, *MODULES}))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _taken(self, name: str) -> Action | None:
        found = self._actions.get(name)
        return DECLARED.get(name) if found is None else found

    def _not_found(self, name: str) -> str:
        near = did_you_mean(str(name), self)
        hints = [near] if near else [f"there are: {', '.join(self)}"]
        hints.extend(self._failed)
        return f"there is no action {name!r}; {'; '.join(hints)}"

    def _load_plugins(self) -> bool:
        """Whether it was not done before."""
        if not self._plugins_wanted:
            return False
        self._plugins_wanted = False
        for entry in entry_points(group=ENTRY_POINTS):
            try:
                self._take(entry.load())
            except Exception as error:  # noqa: BLE001 - a package may raise anything
                problem = f"the plugin {entry.name} ({entry.value}) cannot be used: {error}"
                self._failed.append(problem)
                _log.warning("%s", problem)
        return True

    def _take(self, loaded: Any) -> None:
        if ismodule(loaded) or (isfunction(loaded) and _declared(loaded)):
            return
        found: Any = loaded() if isclass(loaded) else loaded
        if not hasattr(found, "spec") or not hasattr(found, "apply"):
            raise InvalidAction(f"{loaded!r} is no action, no class of one and no module of some")
        self.register(found)


def _declared(function: Any) -> bool:
    return any(action.function is function for action in DECLARED.values())
