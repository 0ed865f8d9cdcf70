"""Whole texts with values in them: templates of files, in Jinja's language.

A tag alone on its line leaves no empty line behind; lines end as they do in the template. Values
become text as everywhere in a workflow (``true``, not ``True``). ``{{ .name }}``, as templates of
older workflows have it, is ``name``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import TracebackType
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, nodes

from tenure.model.errors import ExpressionError
from tenure.workflow.line_ends import give_back
from tenure.workflow.sandbox import LONGEST_TEXT, NotDefined
from tenure.workflow.template_language import SANDBOX, Filling, Rendering, problems_in
from tenure.workflow.wording import did_you_mean

_KEPT = 32
_WRONG = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError)
_GO_WORDS = ("if", "else", "end", "range", "with", "define", "template", "block")
_GO = re.compile(rf"{{{{-?\s*(?:{'|'.join(_GO_WORDS)})\b")
_GO_HINT = "tags are written {% if … %}, {% for … in … %} and {% endif %} here"


class TextTemplate:
    """One compiled template. Messages name it and the line."""

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
        """``ExpressionError`` if a value it needs is not there, or not of the kind it needs."""
        # Jinja asks the parent mapping for nothing but keys and never writes to it.
        context = Rendering(SANDBOX, scope, self._name, {})  # type: ignore[arg-type]
        try:
            return _gathered(self._render(context))
        except NotDefined as error:
            raise self._not_defined(error, scope) from error
        except ExpressionError as error:
            place = self._line_of(error)
            raise ExpressionError(self._at(place, error.message), hint=error.hint) from error
        except (TemplateError, *_WRONG) as error:
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
        """Of the template: the innermost part of it that was at work."""
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


@lru_cache(maxsize=_KEPT)
def compile_template(source: str, name: str) -> TextTemplate:
    """``ExpressionError`` names the line that cannot be read. ``name`` is what messages call it."""
    return TextTemplate(source, name)
