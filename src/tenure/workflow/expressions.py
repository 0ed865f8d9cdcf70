"""Expressions: ``when`` and what stands in ``${{ }}``. Compiled once, evaluated per host."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from math import isfinite
from typing import Any

import msgspec
from jinja2 import TemplateError, nodes, pass_context

from tenure.model.errors import ExpressionError
from tenure.workflow.comparing import compare, truth
from tenure.workflow.constants import check_constants
from tenure.workflow.filters import FILTERS, METHODS, TESTS, measured, text
from tenure.workflow.older_spelling import modern
from tenure.workflow.sandbox import (
    LONGEST_TEXT,
    Evaluation,
    Missing,
    NotDefined,
    Sandbox,
    known,
    within,
)
from tenure.workflow.syntax import (
    COMPARE,
    CONCAT,
    TRUTH,
    Rewriting,
    asked_in,
    names_in,
    needed_in,
    read_tree,
)
from tenure.workflow.wording import called, did_you_mean

_KEPT = 2048
_RESULT = "result"
_OUR_WAY = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError)


@pass_context
def _compare(context: Evaluation, left: Any, operators: tuple[str, ...], *others: Any) -> bool:
    context.charge(known(left))
    for operator, right in zip(operators, others, strict=True):
        context.charge(known(right))
        if not compare(operator, left, right):
            return False
        left = right
    return True


@pass_context
def _concat(context: Evaluation, first: Any, *others: Any) -> str:
    whole = text(first)
    for other in others:
        context.charge(whole)
        whole = within(whole, text(other), LONGEST_TEXT)
    return whole


@pass_context
def _truth(context: Evaluation, value: Any) -> bool:
    return truth(_settled(value))


OPERATORS = {COMPARE: _compare, CONCAT: _concat, TRUTH: _truth}
"""What ``Rewriting`` puts in the place of Jinja's own."""
_SANDBOX = Sandbox(FILTERS | OPERATORS, TESTS, METHODS)


class Expression:
    """One compiled expression.

    ``names`` are the variables it may read; of these, ``needs`` those without which it has no
    value, and ``asks`` those of which it asks whether they are there. ``quotes``: its value is
    made a word for a shell.
    """

    __slots__ = ("_render", "_tree", "asks", "names", "needs", "quotes", "text")

    def __init__(self, source: str, *, shown_as: str, condition: bool = False) -> None:
        tree = read_tree(source, _SANDBOX)
        self.quotes = isinstance(tree, nodes.Filter) and tree.name == "quote"
        self._tree = Rewriting(condition).whole(tree)
        check_constants(self._tree, _SANDBOX)
        self._render: Callable[[Evaluation], Iterator[str]] | None = None
        self.text = shown_as
        self.names = names_in(self._tree)
        self.needs = needed_in(self._tree)
        self.asks = asked_in(self._tree)

    def _compiled(self) -> Callable[[Evaluation], Iterator[str]]:
        """Made when first needed: whoever only checks a file need not wait for it."""
        result = nodes.Assign(nodes.Name(_RESULT, "store"), self._tree, lineno=1)
        whole = nodes.Template([result], lineno=1)
        whole.set_environment(_SANDBOX)
        render: Any = _SANDBOX.from_string(whole).root_render_func
        self._render = render
        return self._render

    def evaluate(self, scope: Mapping[str, Any]) -> Any:
        """The value, of a kind JSON knows. ``ExpressionError``."""
        # Jinja asks the parent mapping for nothing but keys and never writes to it.
        context = Evaluation(_SANDBOX, scope, None, {})  # type: ignore[arg-type]
        try:
            deque((self._render or self._compiled())(context), maxlen=0)
            return _settled(context.vars[_RESULT])
        except NotDefined as error:
            raise self._not_defined(error, scope) from error
        except ExpressionError as error:
            raise ExpressionError(self._placed(error.message), hint=error.hint) from error
        except (TemplateError, *_OUR_WAY) as error:
            raise ExpressionError(self._placed(str(error))) from error

    def _not_defined(self, error: NotDefined, scope: Mapping[str, Any]) -> ExpressionError:
        if error.name is None:
            return ExpressionError(self._placed(error.message or "not defined"))
        near = did_you_mean(error.name, scope)
        quote = f"quote it ('{error.name}') if it is meant as text"
        hint = f"{near} or {quote}" if near else quote
        return ExpressionError(
            self._placed(f"{error.name!r} is not defined"), hint=hint, undefined=error.name
        )

    def _placed(self, message: str) -> str:
        text = self.text if len(self.text) <= 80 else f"{self.text[:77]}…"
        return f"{message} in {text!r}"


class Condition(Expression):
    """A ``when``."""

    __slots__ = ()

    def holds(self, scope: Mapping[str, Any]) -> bool:
        return bool(self.evaluate(scope))


@lru_cache(maxsize=_KEPT)
def compile_expression(text: str) -> Expression:
    """``ExpressionError`` if it cannot be one."""
    return Expression(text, shown_as=text.strip())


@lru_cache(maxsize=_KEPT)
def compile_condition(text: str) -> Condition:
    """For ``when``: also reads the older spelling. Empty: always true."""
    return Condition(modern(text), shown_as=text.strip(), condition=True)


def _settled(value: Any) -> Any:
    """A value that can be kept: JSON knows it, and it stays within bounds."""
    if isinstance(value, str):
        return measured(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not isfinite(value):
            raise ExpressionError("the result is not a finite number")
        return value
    if isinstance(value, Missing):
        return value.fail()
    if isinstance(value, list | tuple | dict):
        return _settled_parts(value)
    raise ExpressionError(f"{called(value)} is not a value: a method needs its parentheses")


def _settled_parts(value: list[Any] | tuple[Any, ...] | dict[str, Any]) -> Any:
    open_parts: list[Any] = [measured(value)]
    while open_parts:
        part = open_parts.pop()
        if isinstance(part, dict):
            if not all(isinstance(key, str) for key in part):
                raise ExpressionError("the keys of a map must be text")
            open_parts.extend(part.values())
        elif isinstance(part, list | tuple):
            open_parts.extend(part)
        else:
            _settled(part)
    return msgspec.to_builtins(value)
