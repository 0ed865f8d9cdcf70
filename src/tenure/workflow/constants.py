"""Arithmetic that fails whatever the variables are: known before anything runs."""

from __future__ import annotations

from typing import Any

from jinja2 import nodes

from tenure.model.errors import ExpressionError
from tenure.workflow.sandbox import Sandbox
from tenure.workflow.syntax import surely_used


class _Depends(Exception):
    """On more than numbers and texts that stand there."""


def check_constants(tree: nodes.Node, sandbox: Sandbox) -> None:
    """``ExpressionError`` if a part that is surely looked at has no value."""
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
        open_nodes.extend(surely_used(node))


def _value_of(node: nodes.Node, sandbox: Sandbox) -> Any:
    if isinstance(node, nodes.Const):
        return node.value
    if isinstance(node, nodes.BinExpr) and node.operator in sandbox.intercepted_binops:
        left, right = _value_of(node.left, sandbox), _value_of(node.right, sandbox)
        return sandbox.calculated(node.operator, left, right)
    if isinstance(node, nodes.UnaryExpr) and node.operator in sandbox.intercepted_unops:
        return sandbox.signed(node.operator, _value_of(node.node, sandbox))
    raise _Depends
