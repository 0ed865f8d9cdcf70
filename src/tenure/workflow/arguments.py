"""Arguments against what their action says it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from tenure.model.errors import ExpressionError
from tenure.workflow.catalogue import ActionSpec, Argument
from tenure.workflow.comparing import number_of
from tenure.workflow.environment import text_of
from tenure.workflow.wording import did_you_mean, instead_of, shown

_FALSE, _TRUE = frozenset({"false", "no", "off", "0"}), frozenset({"true", "yes", "on", "1"})
_CALLED = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a map",
    "null": "nothing",
}


class Misfit(Struct, frozen=True):
    """What is wrong with the arguments; ``name`` of the one concerned, if one is."""

    name: str | None
    message: str
    hint: str | None = None
    unknown: bool = False
    """The name itself is the mistake."""


def misfits(args: Mapping[str, Any], spec: ActionSpec) -> Iterator[Misfit]:
    known = {argument.name: argument for argument in spec.arguments}
    for name, value in args.items():
        if name in known:
            yield from _wrong_value(name, value, known[name])
        elif not spec.further_arguments:
            message = f"{spec.name} takes no argument {name!r}"
            yield Misfit(name, message, _instead(name, spec), unknown=True)
    for argument in spec.arguments:
        if argument.required and args.get(argument.name) is None:
            yield Misfit(None, f"{spec.name} needs {argument.name!r}")
    for group in spec.exactly_one_of:
        given = [name for name in group if args.get(name) is not None]
        if len(given) != 1:
            count = "none of them" if not given else " and ".join(given)
            yield Misfit(
                given[1] if given else None,
                f"{spec.name} needs exactly one of {', '.join(group)}, not {count}",
            )
    for group in spec.at_most_one_of:
        given = [name for name in group if args.get(name) is not None]
        if len(given) > 1:
            yield Misfit(given[1], f"{spec.name} takes one of {', '.join(group)}, not several")


def _instead(name: str, spec: ActionSpec) -> str:
    meant = spec.meant_by(name)
    if meant is not None:
        return f"it is called {meant.name!r} here"
    return instead_of(name, (argument.name for argument in spec.arguments), 20)


def _wrong_value(name: str, value: Any, argument: Argument) -> Iterator[Misfit]:
    if value is None and not argument.required:
        return
    if isinstance(value, str) and "${" in value:
        return
    try:
        fitted(value, argument)
    except ExpressionError as error:
        yield Misfit(name, error.message, error.hint)


def fitted(value: Any, argument: Argument, name: Callable[[Any], str] = shown) -> Any:
    """``value`` as ``argument`` wants it: a number may be written as text and the other way round.

    ``ExpressionError`` if it cannot be one; ``name`` says how the message may name it (``called``
    for what a variable brought).
    """
    if argument.types and not any(_is(value, kind) for kind in argument.types):
        value = _converted(value, argument, name)
    if argument.choices and value not in argument.choices:
        choices = [text_of(choice) for choice in argument.choices]
        hint = did_you_mean(text_of(value), choices)
        raise ExpressionError(f"must be one of {', '.join(choices)}, not {name(value)}", hint=hint)
    if argument.form is not None and not argument.form.fits(value):
        raise ExpressionError(f"must be {argument.form.called}, not {name(value)}")
    return value


def _converted(value: Any, argument: Argument, name: Callable[[Any], str]) -> Any:
    for kind in argument.types:
        if kind == "string" and isinstance(value, bool | int | float):
            return text_of(value)
        if kind == "boolean" and isinstance(value, str | int):
            word = text_of(value).strip().lower()
            if word in _TRUE | _FALSE:
                return word in _TRUE
        number = number_of(value) if isinstance(value, str) else None
        if kind == "number" and number is not None:
            return number
        if kind == "integer" and isinstance(number, int):
            return number
    wanted = " or ".join(_CALLED.get(kind, kind) for kind in argument.types)
    raise ExpressionError(f"must be {wanted}, not {name(value)}")


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, str):
        return kind == "string"
    if isinstance(value, int):
        return kind in ("integer", "number")
    if isinstance(value, float):
        return kind == "number" or (kind == "integer" and value.is_integer())
    if isinstance(value, dict):
        return kind == "object"
    if isinstance(value, list | tuple):
        return kind == "array"
    return value is None and kind == "null"
