"""Templates of files, in Jinja's language.

A tag alone on its line leaves no empty line; line ends stay as in the template. Values become text
as everywhere in a workflow (``true``, not ``True``). ``{{ .name }}``, from older workflows, means
``name``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import TracebackType
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, nodes, pass_context
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream
from jinja2.runtime import LoopContext

from tenure.model.errors import ExpressionError
from tenure.workflow.expressions import OPERATORS, WORDS, Rewriting, filtered, inspect_node
from tenure.workflow.sandbox import (
    FILTERS,
    LONGEST_TEXT,
    METHODS,
    TESTS,
    Evaluation,
    Missing,
    NotDefined,
    Sandbox,
    known,
    text,
)
from tenure.workflow.wording import called, did_you_mean, quoted

# The language: the sandbox of expressions with ``if``, ``for`` and ``set``, and no other files,
# macros or functions. A loop is charged for every round, by its body size, so that a template
# cannot run for long either.


MOST_WORK = 500_000
"""As ``sandbox.MOST_WORK``, for a whole text: a few seconds at worst."""
MOST_TOKENS = 30_000
DEEPEST = 60
_MAX_BLOCK_DEPTH = 15
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
    """A value is charged with all its parts: a loop may read it any number of times."""

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
    """Reads ``{{ .name }}`` as ``{{ name }}``, and limits the size of a template."""

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
    """The rounds of a loop; ``size`` is that of its body."""
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
    """Converts every value to text and every ``if`` to a condition like ``when``; charges loops."""

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
        values: Any = node.iter  # an expression, despite Jinja's types
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
    """Everything that is not allowed, with its line."""
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
    if depth > DEEPEST or blocks > _MAX_BLOCK_DEPTH:
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


# Templates keep their line ends. Jinja converts all of them to ``\n``, but it reports the line at
# which each piece of text began, so each line break can be restored.


_LINE_END = re.compile(r"\r\n|\r|\n")


def give_back(tree: nodes.Template, source: str) -> None:
    """Restore the line ends of the text in ``tree``, which was parsed from ``source``."""
    if "\r" not in source:
        return
    ends = _LINE_END.findall(source)
    for piece in tree.find_all(nodes.TemplateData):
        first, *rest = piece.data.split("\n")
        behind = ends[piece.lineno - 1 :]
        piece.data = first + "".join(end + line for end, line in zip(behind, rest, strict=False))


_MAX_CACHED = 32
_RENDER_ERRORS = (
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    RecursionError,
)
_GO_WORDS = ("if", "else", "end", "range", "with", "define", "template", "block")
_GO = re.compile(rf"{{{{-?\s*(?:{'|'.join(_GO_WORDS)})\b")
_GO_HINT = "tags are written {% if … %}, {% for … in … %} and {% endif %} here"


class TextTemplate:
    """A compiled template. Messages name it and the line."""

    def __init__(self, source: str, name: str) -> None:
        self._source = source
        self._name = name
        read = self._read()
        give_back(read, source)
        tree = Filling().visit(read)
        try:
            self._template = SANDBOX.from_string(tree)
        except TemplateSyntaxError as error:
            raise self._misread(error) from error
        self._render: Any = self._template.root_render_func

    def render(self, scope: Mapping[str, Any]) -> str:
        """``ExpressionError`` if a value it needs is missing or of the wrong type."""
        # Jinja only reads keys of the parent mapping and never writes to it.
        context = Rendering(SANDBOX, scope, self._name, {})  # type: ignore[arg-type]
        try:
            return _gathered(self._render(context))
        except NotDefined as error:
            raise self._not_defined(error, scope) from error
        except ExpressionError as error:
            place = self._line_of(error)
            raise ExpressionError(self._at(place, error.message), hint=error.hint) from error
        except (TemplateError, *_RENDER_ERRORS) as error:
            raise ExpressionError(self._at(self._line_of(error), str(error))) from error

    def _read(self) -> nodes.Template:
        if len(self._source) > LONGEST_TEXT:
            raise ExpressionError(f"{self._name} is longer than {LONGEST_TEXT} characters")
        try:
            tree = SANDBOX.parse(self._source, self._name)
        except TemplateSyntaxError as error:
            raise self._misread(error) from error
        except RecursionError as error:
            raise ExpressionError(f"{self._name} is nested too deeply") from error
        for line, problem in problems_in(tree):
            raise ExpressionError(self._at(line, problem.message), hint=problem.hint) from problem
        return tree

    def _misread(self, error: TemplateSyntaxError) -> ExpressionError:
        lines = self._source.splitlines()
        line = lines[error.lineno - 1] if 0 < error.lineno <= len(lines) else ""
        message = (error.message or "cannot be read").rstrip(".")
        return ExpressionError(
            self._at(error.lineno, message), hint=_GO_HINT if _GO.search(line) else None
        )

    def _not_defined(self, error: NotDefined, scope: Mapping[str, Any]) -> ExpressionError:
        place = self._line_of(error)
        if error.name is None:
            return ExpressionError(self._at(place, error.message or "not defined"))
        hint = _GO_HINT if error.name in _GO_WORDS else did_you_mean(error.name, scope)
        message = self._at(place, f"{error.name!r} is not defined")
        return ExpressionError(message, hint=hint, undefined=error.name)

    def _at(self, line: int, message: str) -> str:
        return f"{self._name}:{line}: {message}"

    def _line_of(self, error: BaseException) -> int:
        """The line of the innermost part of the template in the traceback."""
        line, trace = 1, error.__traceback__
        while trace is not None:
            if _belongs(trace, self._render):
                line = self._template.get_corresponding_lineno(trace.tb_lineno)
            trace = trace.tb_next
        return line


def _gathered(pieces: Iterable[str]) -> str:
    written, left = [], LONGEST_TEXT
    for piece in pieces:
        written.append(piece)
        left -= len(piece)
        if left < 0:
            raise ExpressionError(f"the text would be longer than {LONGEST_TEXT}")
    return "".join(written)


def _belongs(trace: TracebackType, render: Any) -> bool:
    return trace.tb_frame.f_globals is render.__globals__


@lru_cache(maxsize=_MAX_CACHED)
def compile_template(source: str, name: str) -> TextTemplate:
    """``ExpressionError`` names the line that cannot be parsed. ``name`` is used in messages."""
    return TextTemplate(source, name)
