"""Where expressions are evaluated: Jinja2's sandbox, closed further.

Jinja's sandbox keeps expressions away from Python's insides but not from the machine's memory and
time. Here nothing is reachable but the variables themselves, a list of filters, tests and methods
written for this purpose (``filters``), and arithmetic whose results stay small. Every piece of
work is charged to the evaluation it happens in, so that one expression cannot run for long
whatever it says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import isfinite
from typing import Any

from jinja2 import StrictUndefined, UndefinedError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tenure.model.errors import ExpressionError
from tenure.workflow.wording import called, did_you_mean, listed, quoted, shown

LONGEST_TEXT = 1 << 20
MOST_ITEMS = 50_000
MOST_WORK = 150_000
"""List items one evaluation may look at, each some microseconds; ``_TEXT_PER_ITEM`` characters
count as one item. So no evaluation takes much longer than a second."""
_TEXT_PER_ITEM = 50
_LARGEST_WHOLE = 1 << 63


class Evaluation(Context):
    """One evaluation, and how much work it has left."""

    work_left = MOST_WORK

    def charge(self, value: Any) -> None:
        if isinstance(value, str):
            self.work_left -= len(value) // _TEXT_PER_ITEM
        elif isinstance(value, list | tuple | dict):
            self.work_left -= len(value)
        self.work_left -= 1
        if self.work_left < 0:
            raise ExpressionError("this is too much work for an expression")


class NotDefined(UndefinedError):
    """Something was used that is not there. ``name`` if it is a variable."""

    def __init__(self, name: str | None, message: str) -> None:
        super().__init__(message)
        self.name = name


class Missing(StrictUndefined):
    """Stands for what is not there until somebody uses it."""

    __slots__ = ()

    def __init__(
        self, hint: str | None = None, obj: Any = None, name: str | None = None, exc: Any = None
    ) -> None:
        super().__init__(hint=hint, name=name)
        # Jinja only ever calls it with the message.
        self._undefined_exception = partial(NotDefined, None if hint else name)  # type: ignore[assignment]

    def fail(self) -> None:
        self._fail_with_undefined_error()


class Method:
    """A method of a text or map, on its way to being called. Never a value."""

    __slots__ = ("function", "subject")

    def __init__(self, function: Callable[..., Any], subject: Any) -> None:
        self.function = function
        self.subject = subject


def known(value: Any) -> Any:
    """``value``, which is there."""
    if isinstance(value, Missing):
        value.fail()
    return value


class Sandbox(ImmutableSandboxedEnvironment):
    context_class = Evaluation
    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})
    intercepted_unops = frozenset({"+", "-"})

    def __init__(
        self,
        filters: Mapping[str, Callable[..., Any]],
        tests: Mapping[str, Callable[..., Any]],
        methods: Mapping[type, Mapping[str, Callable[..., Any]]],
    ) -> None:
        super().__init__(undefined=Missing, optimized=False, autoescape=False, cache_size=0)
        self.globals.clear()
        self.filters = dict(filters)
        self.tests = dict(tests)
        self.methods = methods

    def getattr(self, obj: Any, attribute: str) -> Any:
        """A key of a map first: data may well have keys called ``items`` or ``get``."""
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, Missing):
            return obj  # what is missing has no parts, and ``default`` may still follow
        known(argument)
        if isinstance(obj, dict) and isinstance(argument, str) and argument in obj:
            return obj[argument]
        if isinstance(obj, list | tuple | str) and _is_whole(argument):
            if -len(obj) <= argument < len(obj):
                return obj[argument]
            return Missing(hint=f"there is no [{argument}]: {len(obj)} long")
        methods = self.methods.get(_kind(obj), {})
        if isinstance(argument, str) and argument in methods:
            return Method(methods[argument], obj)
        return Missing(hint=_absent(obj, argument, methods))

    def call(__self, __context: Any, __obj: Any, *args: Any, **named: Any) -> Any:
        known(__obj)
        if not isinstance(__obj, Method):
            raise ExpressionError(f"{called(__obj)} cannot be called")
        return __obj.function(__context, __obj.subject, *args, **named)

    def call_unop(self, context: Context, operator: str, arg: Any) -> Any:
        return self.signed(operator, arg)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        return self.calculated(operator, left, right)

    def signed(self, operator: str, arg: Any) -> Any:
        if not _is_number(known(arg)):
            raise ExpressionError(f"{operator} needs a number, not {called(arg)}", hint=_AS_NUMBER)
        return -arg if operator == "-" else arg

    def calculated(self, operator: str, left: Any, right: Any) -> Any:
        known(left)
        known(right)
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            return within(left, right, LONGEST_TEXT)
        if operator == "+" and isinstance(left, list) and isinstance(right, list):
            return within(left, right, MOST_ITEMS)
        if not (_is_number(left) and _is_number(right)):
            hint = "join text with ~; " + _AS_NUMBER if operator == "+" else _AS_NUMBER
            raise ExpressionError(
                f"{operator} needs numbers, not {called(left)} and {called(right)}", hint=hint
            )
        if operator == "**" and abs(right) * int(abs(left)).bit_length() > 128:
            raise ExpressionError("the result of ** is too large")
        result = self.binop_table[operator](left, right)
        if not _is_number(result) or not isfinite(result) or abs(result) >= _LARGEST_WHOLE:
            raise ExpressionError(f"the result of {operator} is no number that could be kept")
        return result


_AS_NUMBER = "make a number of text with |int or |float"


def within(left: Any, right: Any, most: int) -> Any:
    """``left + right``, unless that is more than ``most``."""
    if len(left) + len(right) > most:
        raise ExpressionError(f"this would be longer than {most}")
    return left + right


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(obj: Any) -> type:
    return dict if isinstance(obj, dict) else type(obj)


def _absent(obj: Any, argument: Any, methods: Mapping[str, Any]) -> str:
    if isinstance(obj, dict):
        names = [key for key in obj if isinstance(key, str)]
        near = did_you_mean(argument, names) if isinstance(argument, str) else None
        said = f"; {near}" if near else f" (it has {listed(names, 5)})" if names else ""
        return f"the map has no {_shown(argument)}{said}"
    if methods:
        return f"{called(obj)} has no {_shown(argument)} (there is {listed(methods, 20)})"
    return f"{called(obj)} has no {_shown(argument)}"


def _shown(argument: Any) -> str:
    """It may be the value of a variable."""
    return quoted(argument) if isinstance(argument, str) else shown(argument)
