"""How values compare, in ``when`` and in ``${{ }}`` alike, and what counts as true in ``when``.

Exported variables are always text, so text that looks like a number is one: ``COUNT > 3`` means
what it says although ``COUNT`` is ``"5"``, and ``"01"`` equals ``1``. Only plain decimals look like
numbers: two commit ids that happen to read ``12e4`` and ``120e3`` are not the same commit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import ge, gt, le, lt
from typing import Any

from tenure.model.errors import ExpressionError
from tenure.workflow.environment import text_of
from tenure.workflow.wording import called

_DECIMAL = re.compile(r"\s*[+-]?([0-9]{1,300}(\.[0-9]{0,300})?|\.[0-9]{1,300})\s*", re.ASCII)
_NUMBER_STARTS = frozenset("0123456789+-. \t\n\r\f\v")
_FALSE_WORDS = frozenset({"", "false", "0", "no"})
_BY_SIZE: dict[str, Callable[[Any, Any], bool]] = {"gt": gt, "gteq": ge, "lt": lt, "lteq": le}


def number_of(value: Any) -> int | float | None:
    """The number a value is or looks like. ``true`` is not 1."""
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
    return _BY_SIZE[operator](first, second)


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
    """What a condition makes of a lone value: the words an export may say no with are false."""
    if isinstance(value, str):
        return value.strip().lower() not in _FALSE_WORDS
    return bool(value)
