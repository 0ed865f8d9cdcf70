"""The language of templates: the sandbox of expressions with ``if``, ``for`` and ``set`` added, and
nothing else: no other files, no macros, no functions.

A loop is charged for every round, by the size of its body. So a template cannot run for long
either, whatever it and its values say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from jinja2 import TemplateSyntaxError, nodes, pass_context
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream
from jinja2.runtime import LoopContext

from tenure.model.errors import ExpressionError
from tenure.workflow.expressions import OPERATORS
from tenure.workflow.filters import FILTERS, METHODS, TESTS, text
from tenure.workflow.sandbox import Evaluation, Missing, Sandbox, known
from tenure.workflow.syntax import WORDS, Rewriting, filtered, inspect_node
from tenure.workflow.wording import called, quoted

MOST_WORK = 500_000
"""As ``sandbox.MOST_WORK``, for a whole text: a few seconds at worst."""
MOST_TOKENS = 30_000
DEEPEST = 60
_DEEPEST_BLOCK = 15
_NODES_PER_ITEM = 4
_EACH, _TEXT = " each", " text"
_BLOCKS = (nodes.If, nodes.For)
_STATEMENTS = (nodes.Template, nodes.Output, nodes.TemplateData, nodes.Assign, *_BLOCKS)
_LOOP = (
    "first",
    "last",
    "index",
    "index0",
    "revindex",
    "revindex0",
    "length",
    "previtem",
    "nextitem",
)


class Rendering(Evaluation):
    """A value is charged with all its parts: in a loop it may be looked at any number of times."""

    work_left = MOST_WORK

    def charge(self, value: Any) -> None:
        parts = [value]
        while parts and self.work_left >= 0:
            part = parts.pop()
            super().charge(part)
            if isinstance(part, dict):
                parts.extend(part.values())
            elif isinstance(part, list | tuple):
                parts.extend(part)


class _Tokens(Extension):
    """Reads ``{{ .name }}`` as ``{{ name }}``, and no more than can be compiled in a moment."""

    def filter_stream(self, stream: TokenStream) -> Iterable[Token]:
        before = None
        for count, token in enumerate(stream):
            if count > MOST_TOKENS:
                raise TemplateSyntaxError("the template is too large", token.lineno)
            if token.type != "dot" or before != "variable_begin":
                yield token
            before = token.type


class _TemplateSandbox(Sandbox):
    context_class = Rendering

    def __init__(self) -> None:
        super().__init__(FILTERS | OPERATORS | {_EACH: _each, _TEXT: _text}, TESTS, METHODS)
        self.trim_blocks = self.lstrip_blocks = self.keep_trailing_newline = True
        self.add_extension(_Tokens)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if not isinstance(obj, LoopContext):
            return super().getitem(obj, argument)
        if argument in _LOOP:
            return getattr(obj, argument)
        return Missing(hint=f"loop has no {quoted(str(argument))} (there is {', '.join(_LOOP)})")


@pass_context
def _each(context: Evaluation, values: Any, size: int) -> Iterator[Any]:
    """The rounds of a loop. ``size``: of its body."""
    if not isinstance(known(values), list | tuple | dict):
        hint = "take text apart with |split, read JSON with |fromjson"
        raise ExpressionError(f"{called(values)} is no list to go through", hint=hint)
    return _charged(context, values, size // _NODES_PER_ITEM)


def _charged(context: Evaluation, values: Iterable[Any], more: int) -> Iterator[Any]:
    for value in values:
        context.work_left -= 1 + more
        if context.work_left < 0:
            raise ExpressionError("this is too much work for a template")
        yield value


@pass_context
def _text(context: Evaluation, value: Any) -> str:
    written = text(value)
    context.charge(written)
    return written


class Filling(Rewriting):
    """Makes every value text, every ``if`` a condition as in ``when``, and loops pay."""

    def __init__(self) -> None:
        super().__init__(condition=False)

    def visit_Output(self, node: nodes.Output) -> nodes.Output:
        self.generic_visit(node)
        node.nodes = [
            each if isinstance(each, nodes.TemplateData) else filtered(_TEXT, each)
            for each in node.nodes
        ]
        return node

    def visit_If(self, node: nodes.If) -> nodes.If:
        test, node.test = node.test, nodes.Const(True, lineno=node.lineno)
        self.generic_visit(node)
        node.test = _condition(test)
        return node

    def visit_For(self, node: nodes.For) -> nodes.For:
        size = sum(1 for _ in node.find_all(nodes.Node))
        test, node.test = node.test, None
        self.generic_visit(node)
        values: Any = node.iter  # an expression, whatever Jinja's types say
        node.iter = filtered(_EACH, values, nodes.Const(size, lineno=node.lineno))
        node.test = None if test is None else _condition(test)
        return node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        return node if node.ctx == "store" else super().visit_Tuple(node)

    def visit_Name(self, node: nodes.Name) -> nodes.Expr:
        return node if node.ctx == "store" else super().visit_Name(node)


def _condition(test: Any) -> nodes.Expr:
    return Rewriting(condition=True).whole(test)


SANDBOX = _TemplateSandbox()


def problems_in(tree: nodes.Template) -> Iterator[tuple[int, ExpressionError]]:
    """What is not allowed, with its line."""
    open_nodes: list[tuple[nodes.Node, int, int]] = [(tree, 1, 0)]
    while open_nodes:
        node, depth, blocks = open_nodes.pop()
        blocks += isinstance(node, _BLOCKS)
        try:
            _inspect(node, depth, blocks)
        except ExpressionError as error:
            yield node.lineno, error
        open_nodes.extend((each, depth + 1, blocks) for each in node.iter_child_nodes())


def _inspect(node: nodes.Node, depth: int, blocks: int) -> None:
    if depth > DEEPEST or blocks > _DEEPEST_BLOCK:
        raise ExpressionError("this is nested too deeply")
    if isinstance(node, nodes.For) and node.recursive:
        raise ExpressionError("a loop cannot be recursive here")
    if isinstance(node, nodes.Name) and node.ctx == "store" and node.name.lower() in WORDS:
        raise ExpressionError(f"{node.name!r} has its meaning and cannot be set")
    if isinstance(node, nodes.Stmt) and not isinstance(node, _STATEMENTS):
        word = type(node).__name__.lower()
        raise ExpressionError(f"{word} is not there in templates", hint="use if, for and set")
    if not isinstance(node, _STATEMENTS):
        inspect_node(node, SANDBOX)
