"""Expressions and the variables they are tried with."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.model.errors import ExpressionError
from tenure.workflow.expressions import compile_condition, compile_expression

SCOPE: dict[str, Any] = {
    "COUNT": "5",
    "release": "1.4",
    "n": 3,
    "ok": True,
    "off": False,
    "nothing": None,
    "empty": "",
    "no": "no",
    "names": ["b", "a", "c"],
    "numbers": [3, "10", 2],
    "zone": {"items": 1, "name": "eu", "inner": {"deep": [1, 2]}},
    "hosts": {"web1": {"KEY": "v"}},
    "result": 7,
    "path": "/var/log/app.log",
    "json": '{"a": [1, 2]}',
    "endless": float("inf"),
}


def value(expression: str) -> Any:
    return compile_expression(expression).evaluate(SCOPE)


def holds(condition: str) -> bool:
    return compile_condition(condition).holds(SCOPE)


def failure(expression: str) -> str:
    with pytest.raises(ExpressionError) as caught:
        value(expression)
    return str(caught.value)
