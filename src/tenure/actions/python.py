"""``python.call``: a function of the program that executes the run."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import traceback
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from importlib import import_module
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Literal, TypeVar

from tenure.model.errors import InvalidAction, InvalidArguments, StillRunning
from tenure.model.status import HostStatus
from tenure.ports.execution import LET_THROUGH, CheckResult, Output, Task, TaskResult, Transport
from tenure.workflow.catalogue import ActionSpec, Argument, Text

T = TypeVar("T")

_GRACE_S = 5.0


async def in_thread(function: Callable[[], T], name: str) -> T:
    """What ``function`` returns or raises, called in a thread of its own. (In a pool a few stuck
    functions would block all others, and keep the program from ending.)

    A thread cannot be ended from outside. If cancelled, it waits ``_GRACE_S`` for the function,
    then raises ``StillRunning``.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        try:
            value = function()
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            failure = RuntimeError(repr(error)) if isinstance(error, StopIteration) else error
            call_in_loop(lambda: answer.set_exception(failure))
        except BaseException as error:  # noqa: BLE001 - sys.exit() ends the function, not us
            exited = RuntimeError(f"{type(error).__name__}: {error}")
            call_in_loop(lambda: answer.set_exception(exited))
        else:
            call_in_loop(lambda: answer.set_result(value))

    def call_in_loop(how: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(how)

    context = copy_context()
    threading.Thread(target=context.run, args=(work,), name=name, daemon=True).start()
    try:
        return await asyncio.shield(answer)
    except asyncio.CancelledError:
        await _await_end(answer, name)
        raise


async def _await_end(answer: asyncio.Future[T], name: str) -> None:
    with suppress(asyncio.CancelledError):
        await asyncio.wait({answer}, timeout=_GRACE_S)
    if not answer.done():
        raise StillRunning(
            f"{name} was told to end and still runs: a plain function cannot be ended from "
            "outside. Write it `async def`, or run it as a process"
        ) from None
    answer.exception()  # retrieved, or asyncio logs it


_DONE = TaskResult()


async def call(
    function: Callable[..., Any],
    args: Mapping[str, Any],
    awaited: bool,
    name: str,
    output: Output,
) -> TaskResult:
    """Await ``function``, or call it in a thread. Its traceback is written to ``output``."""
    try:
        if awaited:
            returned = await function(**args)
        else:
            returned = await in_thread(partial(function, **args), name)
            if isawaitable(returned):  # an async function behind a plain wrapper
                returned = await returned
    except LET_THROUGH:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it raises is its failure
        await output.write("stderr", traceback.format_exc().encode("utf-8", "replace"))
        return failed(error)
    return result_of(returned, name)


def result_of(returned: object, name: str) -> TaskResult:
    if returned is None:
        return _DONE
    if isinstance(returned, TaskResult):
        return returned
    if isinstance(returned, dict) and all(isinstance(key, str) for key in returned):
        return TaskResult(vars=returned)
    return TaskResult(
        status=HostStatus.FAILED,
        kind="exception",
        message=f"{name} returned {type(returned).__name__}; return None, a dict of variables by "
        "name, or a TaskResult",
    )


def failed(error: Exception) -> TaskResult:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return TaskResult(status=HostStatus.FAILED, kind="exception", message=text)


PYTHON_CALL_SPEC = ActionSpec(
    name="python.call",
    description="Call a Python function in the process that executes the run, not on the host. "
    "`tenure worker` and `tenure up` call only those of modules that `python_modules` names. "
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
    """``modules``: whose functions may be called, those of their submodules too; ``None``: any."""

    spec = PYTHON_CALL_SPEC

    def __init__(self, modules: Sequence[str] | None = None) -> None:
        self._modules = None if modules is None else tuple(modules)

    async def apply(self, task: Task, transport: Transport, output: Output) -> TaskResult:
        name, args = _wanted(task)
        function = await self._found(name)
        return await call(function, args, iscoroutinefunction(function), name, output)

    async def check(self, task: Task, transport: Transport) -> CheckResult:
        name, args = _wanted(task)
        await self._found(name)
        return CheckResult(summary=f"would call {name}({', '.join(args)})")

    async def _found(self, name: str) -> Callable[..., Any]:
        """A module's name opens that module and not all that it imported (``shop:os.system``):
        where a function was defined counts as well."""
        module_name = name.partition(":")[0]
        if self._modules is None:
            return await _found(name)
        self._check(module_name, name)
        function = await _found(name)
        self._check(getattr(function, "__module__", None) or "", name)
        return function

    def _check(self, module: str, name: str) -> None:
        if not any(f"{module}.".startswith(f"{each}.") for each in self._modules or ()):
            raise InvalidArguments(
                f"function: {name} would run inside the worker, and the worker's setting "
                f"python_modules does not name {module or 'a module that defines it'}"
            )


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


PYTHON_CALL = PythonCall()


# What a function's signature says about the arguments of an action.


_SUPPLIED: dict[Any, str] = {Task: "task", Transport: "transport", Output: "output"}
"""Parameters of these types get what the action itself is given."""
_TYPES: dict[Any, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    tuple: "array",
    Sequence: "array",
    dict: "object",
    Mapping: "object",
    type(None): "null",
}
_ANYTHING: tuple[str, ...] = ()


class Signature(typing.NamedTuple):
    spec: ActionSpec
    supplied: dict[str, str]
    """Parameters that are no arguments, and which of ``_SUPPLIED`` they get."""


def signature_of(
    name: str, function: Callable[..., Any], *, on_takeover: str | None = None
) -> Signature:
    """``InvalidAction`` if arguments given by name cannot fill its parameters."""
    hints = _hints(function)
    arguments: list[Argument] = []
    supplied: dict[str, str] = {}
    further = False
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise InvalidAction(
                f"action {name!r}: parameter {parameter} of {name_of(function)} cannot be "
                "given by name, as a step gives its arguments"
            )
        if parameter.kind is parameter.VAR_KEYWORD:
            further = True
        elif _is_supplied(hint):
            supplied[parameter.name] = _SUPPLIED[hint]
        else:
            arguments.append(_argument(parameter, hint))
    spec = ActionSpec(
        name=name,
        description=(inspect.getdoc(function) or "").partition("\n\n")[0],
        arguments=tuple(arguments),
        further_arguments=further,
        environment="transport" in supplied.values(),
        in_process=not {"transport", "task"} & set(supplied.values()),
        on_takeover=on_takeover,
    )
    return Signature(spec, supplied)


def name_of(function: Callable[..., Any]) -> str:
    """``module.function``; partial objects and the like have no better name than their type's."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _is_supplied(hint: Any) -> bool:
    return isinstance(hint, type) and hint in _SUPPLIED


def _argument(parameter: inspect.Parameter, hint: Any) -> Argument:
    description = ""
    if typing.get_origin(hint) is typing.Annotated:
        hint, *notes = typing.get_args(hint)
        description = next((note for note in notes if isinstance(note, str)), "")
    types_, choices = _allowed(hint)
    return Argument(
        name=parameter.name,
        types=types_,
        choices=choices,
        required=parameter.default is parameter.empty,
        description=description,
    )


def _allowed(hint: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Types and choices. What JSON has no name for may be anything: the function will see."""
    origin = typing.get_origin(hint) or hint
    if origin is Literal:
        choices = typing.get_args(hint)
        named = dict.fromkeys(_TYPES.get(type(choice)) for choice in choices)
        return (_ANYTHING if None in named else tuple(filter(None, named))), choices
    if origin is typing.Union or origin is types.UnionType:
        parts = [_allowed(part) for part in typing.get_args(hint)]
        if any(choices or not named for named, choices in parts):
            return _ANYTHING, ()
        return tuple(dict.fromkeys(each for named, _ in parts for each in named)), ()
    known = _TYPES.get(origin) if isinstance(origin, type) else None
    return ((known,) if known else _ANYTHING), ()


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Annotations as types. One that cannot be resolved here (imported for the type checker only)
    does not spoil the others, and is recognised by its name if it is one we supply."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - annotations may hold any expression
        return {
            name: _resolved(annotation, function)
            for name, annotation in inspect.get_annotations(function).items()
        }


def _resolved(annotation: Any, function: Callable[..., Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    by_name = {kind.__name__: kind for kind in _SUPPLIED}
    last = annotation.rpartition(".")[2]
    try:
        return eval(annotation, getattr(function, "__globals__", {}))  # noqa: S307 - its own text
    except Exception:  # noqa: BLE001 - see above
        return by_name.get(last, Any)
