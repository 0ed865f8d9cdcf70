"""Expressions: ``when`` and the inside of ``${{ }}``. Compiled once, evaluated per host."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from math import isfinite
from typing import Any, TypeGuard

import msgspec
from jinja2 import TemplateError, TemplateSyntaxError, nodes, pass_context
from jinja2.parser import Parser
from jinja2.visitor import NodeTransformer

from tenure.model.errors import ExpressionError
from tenure.workflow.sandbox import (
    FILTERS,
    LONGEST_TEXT,
    METHODS,
    TESTS,
    Evaluation,
    Missing,
    NotDefined,
    Sandbox,
    compare,
    known,
    measured,
    text,
    truth,
    within,
)
from tenure.workflow.wording import called, did_you_mean, listed

# Parsing. The tree holds only the node types listed here, is small, and has Jinja's comparison and
# concatenation replaced by our own: Jinja's would compare ``"5"`` with ``3`` by type and grow text
# without limit.


LONGEST = 4096
DEEPEST = 40
MOST_NODES = 600
COMPARE, CONCAT, TRUTH = " compare", " concat", " truth"
"""Filters that no expression can name, since their names begin with a space."""
_ALLOWED = (
    nodes.Name,
    nodes.Const,
    nodes.List,
    nodes.Tuple,
    nodes.Dict,
    nodes.Pair,
    nodes.CondExpr,
    nodes.BinExpr,
    nodes.UnaryExpr,
    nodes.Compare,
    nodes.Operand,
    nodes.Concat,
    nodes.Getattr,
    nodes.Getitem,
    nodes.Slice,
    nodes.Call,
    nodes.Keyword,
    nodes.Filter,
    nodes.Test,
)
_ASKING = (nodes.Filter, nodes.Test)
_MAX_INTEGER = 1 << 63
WORDS = {"true": True, "false": False, "null": None, "none": None}


def read_tree(source: str, sandbox: Sandbox) -> nodes.Expr:
    if len(source) > LONGEST:
        raise ExpressionError(f"the expression is longer than {LONGEST} characters")
    try:
        parser = Parser(sandbox, source, state="variable")
        tree = parser.parse_expression()
        if not parser.stream.eos:
            found = parser.stream.current.value
            raise ExpressionError(
                f"{found!r} was not expected here", hint="quote it if it is meant as text"
            )
    except TemplateSyntaxError as error:
        raise ExpressionError(_syntax_message(error)) from error
    except RecursionError as error:
        raise ExpressionError("the expression is nested too deeply") from error
    _inspect(tree, sandbox)
    return tree


def _syntax_message(error: TemplateSyntaxError) -> str:
    message = (error.message or "cannot be read").rstrip(".")
    if "end of template" in message:
        return "the expression ends too early"
    if re.match(r"unexpected char u?[\"']{1,2}[\"'\\]", message):
        return "a quote is not closed"
    return message if error.lineno == 1 else f"{message} (line {error.lineno} of the expression)"


def _inspect(tree: nodes.Expr, sandbox: Sandbox) -> None:
    open_nodes: list[tuple[nodes.Node, int]] = [(tree, 1)]
    seen = 0
    while open_nodes:
        node, depth = open_nodes.pop()
        seen += 1
        if depth > DEEPEST or seen > MOST_NODES:
            raise ExpressionError("the expression is nested too deeply or too large")
        inspect_node(node, sandbox)
        open_nodes.extend((child, depth + 1) for child in node.iter_child_nodes())


def inspect_node(node: nodes.Node, sandbox: Sandbox) -> None:
    if not isinstance(node, _ALLOWED):
        raise ExpressionError(f"{type(node).__name__.lower()} is not allowed in expressions")
    if isinstance(node, nodes.Name) and node.name == "self":
        raise ExpressionError("'self' is no variable: Jinja keeps the name for itself")
    if isinstance(node, nodes.Filter):
        _require(node.name, "filter", sandbox.filters)
    elif isinstance(node, nodes.Test):
        _require(node.name, "test", sandbox.tests)
    elif isinstance(node, nodes.Call) and not isinstance(node.node, nodes.Getattr):
        raise ExpressionError("there are no functions: use a filter, like name|lower")
    elif isinstance(node, nodes.CondExpr) and node.expr2 is None:
        raise ExpressionError("an 'if' needs its 'else'")
    elif _number_in(node) >= _MAX_INTEGER:
        raise ExpressionError("a number in the expression is too large")
    elif isinstance(node, nodes.Getattr | nodes.Getitem) and _number_in(node.node):
        raise ExpressionError("a number has no parts", hint="quote it if it is meant as text")
    if isinstance(node, nodes.Filter | nodes.Test | nodes.Call) and (
        node.dyn_args is not None or node.dyn_kwargs is not None
    ):
        raise ExpressionError("* and ** before arguments are not allowed in expressions")


def _number_in(node: nodes.Node) -> float:
    value = node.value if isinstance(node, nodes.Const) else None
    return abs(value) if isinstance(value, int | float) else 0


def _require(name: str, kind: str, table: dict[str, Any]) -> None:
    names = [each for each in table if each[0] != " "]
    if name not in names:
        hint = did_you_mean(name, names) or f"there is {listed(names, 50)}"
        raise ExpressionError(f"no {kind} named {name!r}", hint=hint)


def names_in(tree: nodes.Node) -> frozenset[str]:
    found = {name.name for name in tree.find_all(nodes.Name)}
    return frozenset(found | {tree.name} if isinstance(tree, nodes.Name) else found)


def asked_in(tree: nodes.Node) -> frozenset[str]:
    """Variables that it tests for being defined."""
    found: set[str] = set()
    for each in (tree, *tree.find_all(_ASKING)):
        if _asks(each) and each.node is not None:
            found |= names_in(each.node)
    return frozenset(found)


def needed_in(tree: nodes.Node) -> frozenset[str]:
    """Variables without which it has no value, whatever the others are: without those that it may
    not evaluate (behind ``and``, ``or``, ``if``), or tests for being defined."""
    needed: set[str] = set()
    open_nodes = [tree]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, nodes.Name):
            needed.add(node.name)
        open_nodes.extend(always_evaluated(node))
    return frozenset(needed)


def always_evaluated(node: nodes.Node) -> Iterable[nodes.Node]:
    """The parts that are always evaluated with it."""
    if _asks(node) or isinstance(node, nodes.List | nodes.Dict | nodes.Slice):
        return ()
    if isinstance(node, nodes.And | nodes.Or):
        return (node.left,)
    if isinstance(node, nodes.CondExpr):
        return (node.test,)
    if isinstance(node, nodes.Filter) and node.name == COMPARE:
        # In ``a < b < c`` c is not evaluated if a < b is false.
        return (node.node, node.args[1]) if node.node else ()
    return node.iter_child_nodes()


def _asks(node: nodes.Node) -> TypeGuard[nodes.Filter | nodes.Test]:
    return isinstance(node, _ASKING) and node.name in ("default", "d", "defined", "undefined")


class Rewriting(NodeTransformer):
    """Replaces Jinja's comparison and concatenation by ours, and ``TRUE`` and ``null`` by values.

    In a ``condition``, a lone operand, or one beside and, or, not, is converted to its truth value.
    """

    def __init__(self, condition: bool) -> None:
        self._condition = condition

    def whole(self, tree: nodes.Expr) -> nodes.Expr:
        rewritten: nodes.Expr = self.visit(tree)
        return self._asked(rewritten)

    def _asked(self, node: nodes.Expr) -> nodes.Expr:
        answers = isinstance(node, nodes.And | nodes.Or | nodes.Not | nodes.Test) or (
            isinstance(node, nodes.Filter) and node.name == COMPARE
        )
        return filtered(TRUTH, node) if self._condition and not answers else node

    def visit_Name(self, node: nodes.Name) -> nodes.Expr:
        word = node.name.lower()
        return nodes.Const(WORDS[word], lineno=node.lineno) if word in WORDS else node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        self.generic_visit(node)
        return nodes.List(node.items, lineno=node.lineno)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Expr:
        self.generic_visit(node)
        operators = nodes.Const(tuple(operand.op for operand in node.ops), lineno=node.lineno)
        return filtered(COMPARE, node.expr, operators, *(operand.expr for operand in node.ops))

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:
        self.generic_visit(node)
        first, *rest = node.nodes
        return filtered(CONCAT, first, *rest)

    def visit_And(self, node: nodes.And) -> nodes.Expr:
        return self._both_conditions(node)

    def visit_Or(self, node: nodes.Or) -> nodes.Expr:
        return self._both_conditions(node)

    def _both_conditions(self, node: nodes.BinExpr) -> nodes.Expr:
        self.generic_visit(node)
        node.left, node.right = self._asked(node.left), self._asked(node.right)
        return node

    def visit_Not(self, node: nodes.Not) -> nodes.Expr:
        self.generic_visit(node)
        node.node = self._asked(node.node)
        return node

    def visit_CondExpr(self, node: nodes.CondExpr) -> nodes.Expr:
        self.generic_visit(node)
        node.test = self._asked(node.test)
        return node


def filtered(name: str, subject: nodes.Expr, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(subject, name, list(args), [], None, None, lineno=subject.lineno)


# Constant arithmetic that fails is a mistake known before anything runs.


class _Depends(Exception):
    """The value depends on more than constants."""


def check_constants(tree: nodes.Node, sandbox: Sandbox) -> None:
    """``ExpressionError`` if a part that is always evaluated has no value."""
    open_nodes = [tree]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, nodes.BinExpr | nodes.UnaryExpr):
            try:
                _value_of(node, sandbox)
            except _Depends:
                pass
            except ArithmeticError as error:
                raise ExpressionError(str(error)) from error
        open_nodes.extend(always_evaluated(node))


def _value_of(node: nodes.Node, sandbox: Sandbox) -> Any:
    if isinstance(node, nodes.Const):
        return node.value
    if isinstance(node, nodes.BinExpr) and node.operator in sandbox.intercepted_binops:
        left, right = _value_of(node.left, sandbox), _value_of(node.right, sandbox)
        return sandbox.calculated(node.operator, left, right)
    if isinstance(node, nodes.UnaryExpr) and node.operator in sandbox.intercepted_unops:
        return sandbox.signed(node.operator, _value_of(node.node, sandbox))
    raise _Depends


# ``&&``, ``||``, ``!`` and ``${name.path}`` in ``when``, converted to Jinja's syntax.


_TOKEN = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<named>\$\{(?P<path>[^{}]*)\})
      | (?P<both>&&) | (?P<either>\|\|) | (?P<different>!=) | (?P<negated>!)""",
    re.VERBOSE | re.DOTALL,
)
_WHOLE = re.compile(r"\s*\$\{\{(?P<inside>.*)\}\}\s*", re.DOTALL)
_PART = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_WORDS = {"true": "true", "yes": "true", "": "true", "false": "false", "no": "false"}


def modern(condition: str) -> str:
    """The condition in Jinja's syntax. Quoted text is unchanged; an empty condition is true."""
    word = _WORDS.get(condition.strip().lower())
    if word is not None:
        return word
    whole = _WHOLE.fullmatch(condition)
    if whole and "${{" not in whole["inside"]:
        condition = whole["inside"]
    return _TOKEN.sub(_replaced, condition)


def _replaced(token: re.Match[str]) -> str:
    kind = token.lastgroup
    if token["named"] is not None:
        return _lookup(token["path"].strip())
    return {"both": " and ", "either": " or ", "negated": " not "}.get(kind or "", token[0])


def _lookup(path: str) -> str:
    first, *rest = path.split(".")
    if not _PART.fullmatch(first) or not all(rest):
        raise ExpressionError(
            f"${{{path}}} names no variable", hint="write ${name} or ${name.path}"
        )
    return "(" + first + "".join(f"[{part!r}]" for part in rest) + ")"


_MAX_CACHED = 2048
_RESULT = "result"
_EVALUATION_ERRORS = (
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    RecursionError,
)


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
"""Replacements for Jinja's own, inserted by ``Rewriting``."""
_SANDBOX = Sandbox(FILTERS | OPERATORS, TESTS, METHODS)


class Expression:
    """One compiled expression.

    ``names`` are the variables it may read; of these, ``needs`` those without which it has no
    value, and ``asks`` those it tests for being defined. ``quotes``: its value is quoted for a
    shell.
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
        """Compiled when first needed: checking a file does not need it."""
        result = nodes.Assign(nodes.Name(_RESULT, "store"), self._tree, lineno=1)
        whole = nodes.Template([result], lineno=1)
        whole.set_environment(_SANDBOX)
        render: Any = _SANDBOX.from_string(whole).root_render_func
        self._render = render
        return self._render

    def evaluate(self, scope: Mapping[str, Any]) -> Any:
        """The value, of a JSON type. ``ExpressionError``."""
        # Jinja only reads keys of the parent mapping and never writes to it.
        context = Evaluation(_SANDBOX, scope, None, {})  # type: ignore[arg-type]
        try:
            deque((self._render or self._compiled())(context), maxlen=0)
            return _settled(context.vars[_RESULT])
        except NotDefined as error:
            raise self._not_defined(error, scope) from error
        except ExpressionError as error:
            raise ExpressionError(self._placed(error.message), hint=error.hint) from error
        except (TemplateError, *_EVALUATION_ERRORS) as error:
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


@lru_cache(maxsize=_MAX_CACHED)
def compile_expression(text: str) -> Expression:
    """``ExpressionError`` for an invalid expression."""
    return Expression(text, shown_as=text.strip())


@lru_cache(maxsize=_MAX_CACHED)
def compile_condition(text: str) -> Condition:
    """For ``when``: also accepts the older syntax. Empty: always true."""
    return Condition(modern(text), shown_as=text.strip(), condition=True)


def _settled(value: Any) -> Any:
    """A value of a JSON type within the size limits. ``ExpressionError``."""
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
