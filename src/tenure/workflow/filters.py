"""What expressions can do with values: filters, tests and methods, each bounded.

None is Jinja's own: those may loop or grow without limit. Arguments are charged before the work,
results are measured before they are built wherever they can be longer than what went in.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from functools import wraps
from math import isfinite
from typing import Any

import msgspec
from jinja2 import pass_context

from tenure.model.errors import ExpressionError
from tenure.workflow.comparing import number_of, truth
from tenure.workflow.environment import text_of
from tenure.workflow.sandbox import LONGEST_TEXT, MOST_ITEMS, Evaluation, Missing, known
from tenure.workflow.wording import called

_MEASURE = LONGEST_TEXT + MOST_ITEMS
_DEEPEST = 100


def measured(value: Any) -> Any:
    """``value``, if written out it stays within bounds. Shared parts count each time."""
    left = _MEASURE
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
        if left < len(parts) or depth > _DEEPEST:
            raise ExpressionError("the value is too large")
    return value


def text(value: Any) -> str:
    """As text, within bounds."""
    return text_of(measured(known(value)))


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """For use as a filter, test or method: undefined values refused, all arguments charged."""

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


# -- text -----------------------------------------------------------------------------------------


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
    """One word for a POSIX shell: for scripts that templates write."""
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


# -- numbers --------------------------------------------------------------------------------------


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


# -- lists and maps -------------------------------------------------------------------------------


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


# -- what may be missing --------------------------------------------------------------------------


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
