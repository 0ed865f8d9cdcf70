"""The sandbox of expressions: Jinja2's, restricted further; with values, filters and tests.

Jinja's sandbox protects Python's internals but not memory and time. Here an expression reaches only
the variables, a list of filters, tests and methods written for this purpose, and arithmetic with
bounded results. All work is charged to the evaluation, so that no expression runs for long.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from math import isfinite
from operator import ge, gt, le, lt
from typing import Any

import msgspec
from jinja2 import StrictUndefined, UndefinedError, pass_context
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tenure.model.errors import ExpressionError
from tenure.workflow.environment import text_of
from tenure.workflow.wording import called, did_you_mean, listed, quoted, shown

LONGEST_TEXT = 1 << 20
MOST_ITEMS = 50_000
MOST_WORK = 150_000
"""List items that one evaluation may process, each some microseconds; ``_CHARACTERS_PER_ITEM``
characters count as one item. So no evaluation takes much longer than a second."""
_CHARACTERS_PER_ITEM = 50
_MAX_INTEGER = 1 << 63


class Evaluation(Context):
    """One evaluation, and the work it has left."""

    work_left = MOST_WORK

    def charge(self, value: Any) -> None:
        if isinstance(value, str):
            self.work_left -= len(value) // _CHARACTERS_PER_ITEM
        elif isinstance(value, list | tuple | dict):
            self.work_left -= len(value)
        self.work_left -= 1
        if self.work_left < 0:
            raise ExpressionError("this is too much work for an expression")


class NotDefined(UndefinedError):
    """A missing value was used. ``name`` if it is a variable."""

    def __init__(self, name: str | None, message: str) -> None:
        super().__init__(message)
        self.name = name


class Missing(StrictUndefined):
    """A missing value; an error once it is used."""

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
    """A bound method of a text or map, to be called. Never a value."""

    __slots__ = ("function", "subject")

    def __init__(self, function: Callable[..., Any], subject: Any) -> None:
        self.function = function
        self.subject = subject


def known(value: Any) -> Any:
    """``value``; raises if it is missing."""
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
        """Keys of a map take precedence: data may have keys called ``items`` or ``get``."""
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, Missing):
            return obj  # a missing value has no parts, and ``default`` may still follow
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
        if not _is_number(result) or not isfinite(result) or abs(result) >= _MAX_INTEGER:
            raise ExpressionError(f"the result of {operator} is no number that could be kept")
        return result


_AS_NUMBER = "make a number of text with |int or |float"


def within(left: Any, right: Any, most: int) -> Any:
    """``left + right``. ``ExpressionError`` if that is more than ``most``."""
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
    """A key in a message: it may be the value of a variable, so only its kind if it is long."""
    return quoted(argument) if isinstance(argument, str) else shown(argument)


# Comparison in ``when`` and ``${{ }}``, and truth in ``when``.
#
# Exported variables are always text, so text that looks like a number is one: ``COUNT > 3`` works
# although ``COUNT`` is ``"5"``, and ``"01"`` equals ``1``. Only plain decimals look like numbers:
# two commit ids that happen to read ``12e4`` and ``120e3`` are not equal.


_DECIMAL = re.compile(r"\s*[+-]?([0-9]{1,300}(\.[0-9]{0,300})?|\.[0-9]{1,300})\s*", re.ASCII)
_NUMBER_STARTS = frozenset("0123456789+-. \t\n\r\f\v")
_FALSE_WORDS = frozenset({"", "false", "0", "no"})
_ORDERINGS: dict[str, Callable[[Any, Any], bool]] = {"gt": gt, "gteq": ge, "lt": lt, "lteq": le}


def number_of(value: Any) -> int | float | None:
    """The number that a value is or looks like. ``true`` is not 1."""
    if isinstance(value, str):
        if value[:1] not in _NUMBER_STARTS or not _DECIMAL.fullmatch(value):
            return None
        return float(value) if "." in value else int(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return None


def compare(operator: str, left: Any, right: Any) -> bool:
    """``operator`` as Jinja calls it: eq, ne, gt, gteq, lt, lteq, in, notin."""
    if operator == "eq":
        return equal(left, right)
    if operator == "ne":
        return not equal(left, right)
    if operator == "in":
        return contains(right, left)
    if operator == "notin":
        return not contains(right, left)
    first, second = number_of(left), number_of(right)
    if first is None or second is None:
        raise ExpressionError(
            f"{called(left)} and {called(right)} cannot be ordered: both must be numbers"
        )
    return _ORDERINGS[operator](first, second)


def equal(left: Any, right: Any) -> bool:
    """By number if both look like one, else by truth value, else by text; null equals no text."""
    first, second = number_of(left), number_of(right)
    if first is not None and second is not None:
        return first == second
    if isinstance(left, dict | list | tuple) or isinstance(right, dict | list | tuple):
        return bool(_listed(left) == _listed(right))
    if isinstance(left, bool) or isinstance(right, bool):
        return text_of(left).strip().lower() == text_of(right).strip().lower()
    return text_of(left) == text_of(right)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def contains(container: Any, value: Any) -> bool:
    if isinstance(container, str):
        return text_of(value) in container
    if isinstance(container, dict):
        return text_of(value) in container
    if isinstance(container, list | tuple):
        return any(equal(each, value) for each in container)
    raise ExpressionError(f"nothing can be in {called(container)}: it is no text, list or map")


def truth(value: Any) -> bool:
    """The truth of a lone value: empty text and ``false``, ``0``, ``no`` are false."""
    if isinstance(value, str):
        return value.strip().lower() not in _FALSE_WORDS
    return bool(value)


# Filters, tests and methods. None is Jinja's own: those may loop or grow without limit. Arguments
# are charged before the work, and results that may be longer than the input are measured first.


_MAX_SIZE = LONGEST_TEXT + MOST_ITEMS
_MAX_DEPTH = 100


def measured(value: Any) -> Any:
    """``value``, if it is within bounds when written out. Shared parts count each time."""
    left = _MAX_SIZE
    parts: list[tuple[Any, int]] = [(value, 0)]
    while parts:
        part, depth = parts.pop()
        if isinstance(part, str):
            left -= len(part)
        elif isinstance(part, dict):
            left -= sum(map(len, part)) if all(isinstance(key, str) for key in part) else 0
            parts.extend((each, depth + 1) for each in part.values())
        elif isinstance(part, list | tuple):
            parts.extend((each, depth + 1) for each in part)
        left -= 1
        if left < len(parts) or depth > _MAX_DEPTH:
            raise ExpressionError("the value is too large")
    return value


def text(value: Any) -> str:
    """The value as text, within bounds."""
    return text_of(measured(known(value)))


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a filter, test or method: refuse missing values, charge all arguments."""

    @pass_context
    @wraps(function)
    def call(context: Evaluation, value: Any, *args: Any, **named: Any) -> Any:
        for each in (value, *args, *named.values()):
            known(each)
            context.charge(each)
        return function(value, *args, **named)

    return call


def _list_of(value: Any) -> list[Any]:
    if isinstance(value, list | tuple | dict):
        return list(value)
    raise ExpressionError(f"{called(value)} is no list")


def _map_of(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise ExpressionError(f"{called(value)} is no map")


def _number(value: Any) -> int | float:
    number = number_of(value)
    if number is None:
        raise ExpressionError(f"{called(value)} is no number")
    return number


# Text.


def _replace(value: Any, old: str, new: str) -> str:
    before, old, new = text(value), text(old), text(new)
    if not old:
        raise ExpressionError("replace needs a text to look for")
    if len(before) + before.count(old) * (len(new) - len(old)) > LONGEST_TEXT:
        raise ExpressionError(f"this would be longer than {LONGEST_TEXT}")
    return before.replace(old, new)


def _join(values: Any, separator: Any = "") -> str:
    between, parts, left = text(separator), [], LONGEST_TEXT
    for value in _list_of(values):
        parts.append(text(value))
        left -= len(parts[-1]) + len(between)
        if left < 0:
            raise ExpressionError(f"this would be longer than {LONGEST_TEXT}")
    return between.join(parts)


def _split(value: Any, separator: str | None = None) -> list[str]:
    if separator == "":
        raise ExpressionError("split needs a text to split at, or none for white space")
    parts = text(value).split(separator, MOST_ITEMS)
    if len(parts) > MOST_ITEMS:
        raise ExpressionError(f"more than {MOST_ITEMS} parts")
    return parts


def _strip(value: Any, characters: str | None = None) -> str:
    return text(value).strip(characters)


def _quote(value: Any) -> str:
    """One word for a POSIX shell, for templates of scripts."""
    before = text(value)
    if len(before) + 4 * before.count("'") + 2 > LONGEST_TEXT:
        raise ExpressionError(f"this would be longer than {LONGEST_TEXT}")
    return shlex.quote(before)


def _basename(value: Any) -> str:
    return text(value).rstrip("/").rpartition("/")[2]


def _dirname(value: Any) -> str:
    head, slash, _ = text(value).rstrip("/").rpartition("/")
    return head or slash


def _tojson(value: Any) -> str:
    return msgspec.json.encode(measured(value)).decode()


def _fromjson(value: Any) -> Any:
    try:
        return msgspec.json.decode(text(value))
    except (msgspec.DecodeError, RecursionError) as error:
        raise ExpressionError(f"{called(value)} is no JSON: {error}") from error


# Numbers.


def _int(value: Any) -> int:
    return int(value) if isinstance(value, bool) else int(_number(value))


def _float(value: Any) -> float:
    number = float(_number(value))
    if not isfinite(number):
        raise ExpressionError(f"{called(value)} is too large")
    return number


def _round(value: Any, digits: Any = 0) -> int | float:
    if not isinstance(digits, int) or abs(digits) > 15:
        raise ExpressionError(f"round to 0…15 digits, not {called(digits)}")
    number = round(_number(value), digits)
    return number if digits else int(number)


def _sum(values: Any) -> int | float:
    total = sum(map(_number, _list_of(values)))
    if not isfinite(total):
        raise ExpressionError("the sum is too large")
    return total


# Lists and maps.


def _length(value: Any) -> int:
    if isinstance(value, str | list | tuple | dict):
        return len(value)
    raise ExpressionError(f"{called(value)} has no length")


def _first(value: Any) -> Any:
    return _at(value, 0)


def _last(value: Any) -> Any:
    return _at(value, -1)


def _at(value: Any, index: int) -> Any:
    values = value if isinstance(value, str) else _list_of(value)
    return values[index] if values else Missing(hint="there is nothing in an empty list")


def _reverse(value: Any) -> Any:
    return value[::-1] if isinstance(value, str) else _list_of(value)[::-1]


def _sort(values: Any, reverse: bool = False) -> list[Any]:
    every = measured(_list_of(values))
    by_number = all(number_of(value) is not None for value in every)
    return sorted(every, key=_number if by_number else text, reverse=bool(reverse))


def _unique(values: Any) -> list[Any]:
    first: dict[str, Any] = {}
    for value in measured(_list_of(values)):
        first.setdefault(_tojson(value), value)
    return list(first.values())


def _smallest(values: Any) -> Any:
    return min(_some(values), key=_number)


def _largest(values: Any) -> Any:
    return max(_some(values), key=_number)


def _some(values: Any) -> list[Any]:
    every = _list_of(values)
    if not every:
        raise ExpressionError("there is nothing in an empty list")
    return every


# Missing values.


def _default(value: Any, fallback: Any = "", also_if_false: bool = False) -> Any:
    missing = isinstance(value, Missing) or (also_if_false and not truth(value))
    return fallback if missing else value


def _defined(value: Any) -> bool:
    return not isinstance(value, Missing)


def _undefined(value: Any) -> bool:
    return isinstance(value, Missing)


def _table(**functions: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {name.rstrip("_"): _bounded(function) for name, function in functions.items()}


FILTERS = _table(
    abs=lambda value: abs(_number(value)),
    basename=_basename,
    bool=truth,
    capitalize=lambda value: text(value).capitalize(),
    count=_length,
    dirname=_dirname,
    first=_first,
    float=_float,
    fromjson=_fromjson,
    int=_int,
    join=_join,
    keys=lambda value: list(_map_of(value)),
    last=_last,
    length=_length,
    list=_list_of,
    lower=lambda value: text(value).lower(),
    max=_largest,
    min=_smallest,
    quote=_quote,
    replace=_replace,
    reverse=_reverse,
    round=_round,
    sort=_sort,
    split=_split,
    string=text,
    sum=_sum,
    title=lambda value: text(value).title(),
    tojson=_tojson,
    trim=_strip,
    unique=_unique,
    upper=lambda value: text(value).upper(),
    values=lambda value: list(_map_of(value).values()),
) | {"default": _default, "d": _default}

TESTS = _table(
    boolean=lambda value: isinstance(value, bool),
    even=lambda value: _number(value) % 2 == 0,
    float=lambda value: isinstance(value, float),
    integer=lambda value: isinstance(value, int) and not isinstance(value, bool),
    mapping=lambda value: isinstance(value, dict),
    none=lambda value: value is None,
    number=lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    odd=lambda value: _number(value) % 2 == 1,
    sequence=lambda value: isinstance(value, list | tuple),
    string=lambda value: isinstance(value, str),
) | {"defined": _defined, "undefined": _undefined}


def _pairs(value: dict[str, Any]) -> Iterable[list[Any]]:
    return [[key, each] for key, each in value.items()]


def _get(value: dict[str, Any], key: Any, fallback: Any = None) -> Any:
    return value.get(text(key), fallback)


METHODS: dict[type, dict[str, Callable[..., Any]]] = {
    str: {
        name: FILTERS[name]
        for name in ("capitalize", "lower", "replace", "split", "title", "upper")
    }
    | _table(
        endswith=lambda value, end: value.endswith(text(end)),
        isdigit=str.isdigit,
        join=lambda value, parts: _join(parts, value),
        lstrip=lambda value, characters=None: value.lstrip(characters),
        removeprefix=lambda value, start: value.removeprefix(text(start)),
        removesuffix=lambda value, end: value.removesuffix(text(end)),
        rstrip=lambda value, characters=None: value.rstrip(characters),
        startswith=lambda value, start: value.startswith(text(start)),
        strip=_strip,
    ),
    dict: {name: FILTERS[name] for name in ("keys", "values")} | _table(get=_get, items=_pairs),
}
