"""From the text of an expression to a tree that may be compiled.

The tree holds only what is listed here, is small, and has Jinja's comparison and concatenation
replaced by our own: Jinja's would compare ``"5"`` with ``3`` by type and grow text without asking.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeGuard

from jinja2 import TemplateSyntaxError, nodes
from jinja2.parser import Parser
from jinja2.visitor import NodeTransformer

from tenure.model.errors import ExpressionError
from tenure.workflow.sandbox import Sandbox
from tenure.workflow.wording import did_you_mean, listed

LONGEST = 4096
DEEPEST = 40
MOST_NODES = 600
COMPARE, CONCAT, TRUTH = " compare", " concat", " truth"
"""Filters nobody can write, for their names begin with a space."""
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
_LARGEST_WHOLE = 1 << 63
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
        raise ExpressionError(_said(error)) from error
    except RecursionError as error:
        raise ExpressionError("the expression is nested too deeply") from error
    _inspect(tree, sandbox)
    return tree


def _said(error: TemplateSyntaxError) -> str:
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
    elif _number_in(node) >= _LARGEST_WHOLE:
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
    """Variables of which it asks whether they are there."""
    found: set[str] = set()
    for each in (tree, *tree.find_all(_ASKING)):
        if _asks(each) and each.node is not None:
            found |= names_in(each.node)
    return frozenset(found)


def needed_in(tree: nodes.Node) -> frozenset[str]:
    """Variables without which it has no value, whatever the others are: neither those it merely
    might come to (behind ``and``, ``or``, ``if``), nor those it asks about."""
    needed: set[str] = set()
    open_nodes = [tree]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, nodes.Name):
            needed.add(node.name)
        open_nodes.extend(surely_used(node))
    return frozenset(needed)


def surely_used(node: nodes.Node) -> Iterable[nodes.Node]:
    """Its parts that are looked at whenever it is."""
    if _asks(node) or isinstance(node, nodes.List | nodes.Dict | nodes.Slice):
        return ()
    if isinstance(node, nodes.And | nodes.Or):
        return (node.left,)
    if isinstance(node, nodes.CondExpr):
        return (node.test,)
    if isinstance(node, nodes.Filter) and node.name == COMPARE:
        # In ``a < b < c`` nobody looks at c once a < b does not hold.
        return (node.node, node.args[1]) if node.node else ()
    return node.iter_child_nodes()


def _asks(node: nodes.Node) -> TypeGuard[nodes.Filter | nodes.Test]:
    return isinstance(node, _ASKING) and node.name in ("default", "d", "defined", "undefined")


class Rewriting(NodeTransformer):
    """Our comparison and concatenation for Jinja's; ``TRUE`` and ``null`` for what they say.

    In a ``condition``, what stands alone, or beside and, or, not, is asked for its truth.
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
        return self._both_asked(node)

    def visit_Or(self, node: nodes.Or) -> nodes.Expr:
        return self._both_asked(node)

    def _both_asked(self, node: nodes.BinExpr) -> nodes.Expr:
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
