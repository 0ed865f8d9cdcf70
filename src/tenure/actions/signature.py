"""What a function's signature says about the arguments of an action."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from tenure.model.errors import InvalidAction
from tenure.ports.action import Task
from tenure.ports.transport import Output, Transport
from tenure.workflow.catalogue import ActionSpec, Argument

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
