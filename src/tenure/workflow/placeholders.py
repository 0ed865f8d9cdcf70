"""Splits text with placeholders: ``${{ expression }}``, ``${name.path}`` and the rest.

``$${`` is an escape: it stands for ``${``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from tenure.model.errors import ExpressionError
from tenure.workflow.expressions import Expression, compile_expression

_PATH = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+)*", re.ASCII)
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_MAX_PATH_CHARACTERS = 512
MISSING: Any = object()


class Embedded(Struct, frozen=True):
    """``${{ expression }}``."""

    raw: str
    expression: Expression
    offset: int


class Named(Struct, frozen=True):
    """``${name.path}``: a variable, if there is one of that name."""

    raw: str
    path: tuple[str, ...]
    offset: int

    def look_up(self, scope: Mapping[str, Any]) -> Any:
        """The value, or ``MISSING``."""
        value: Any = scope
        for part in self.path:
            if isinstance(value, Mapping) and part in value:
                value = value[part]
            elif isinstance(value, list | tuple) and part.isdecimal() and int(part) < len(value):
                value = value[int(part)]
            else:
                return MISSING
        return value


Part = str | Embedded | Named


def split_template(text: str, *, escapes: bool = True) -> list[Part]:
    """The parts of ``text`` in order. ``ExpressionError`` with its ``offset`` in the text.

    Without ``escapes``, ``$${name}`` stays as it is and only ``$${{`` is an escape: in a shell
    ``$$`` is the number of the process.
    """
    if "${" not in text:
        return [text]
    parts: list[Part] = []
    plain: list[str] = []
    done = 0
    while (found := text.find("${", done)) >= 0:
        opening = text.startswith("${{", found)
        if found > done and text[found - 1] == "$" and (escapes or opening):
            length = 3 if opening else 2
            plain.append(text[done : found - 1] + text[found : found + length])
            done = found + length
            continue
        part = _embedded(text, found) if opening else _named(text, found)
        end = found + (len(part.raw) if part else 2)
        plain.append(text[done : found if part else end])
        if part:
            parts += [literal] if (literal := "".join(plain)) else []
            parts.append(part)
            plain.clear()
        done = end
    if rest := "".join(plain) + text[done:]:
        parts.append(rest)
    return parts


def _named(text: str, start: int) -> Named | None:
    end = text.find("}", start, start + _MAX_PATH_CHARACTERS)
    path = text[start + 2 : end].strip() if end > 0 else ""
    if not _PATH.fullmatch(path):
        return None
    return Named(text[start : end + 1], tuple(path.split(".")), start)


def _embedded(text: str, start: int) -> Embedded:
    end = _closing(text, start + 3)
    if end is None:
        raise ExpressionError(
            "'${{' is not closed by '}}'",
            hint="write $${{ if it is meant as text",
            offset=start,
        )
    inside = text[start + 3 : end]
    try:
        return Embedded(text[start : end + 2], compile_expression(inside.strip()), start)
    except ExpressionError as error:
        message = f"{error.message} in '${{{{{inside}}}}}'"
        raise ExpressionError(message, hint=error.hint, offset=start) from error


def _closing(text: str, at: int) -> int | None:
    """Where ``}}`` ends the expression: outside quotes, not closing a map."""
    depth = 0
    while at < len(text):
        character = text[at]
        if character in "'\"":
            quoted = _QUOTED.match(text, at)
            if quoted is None:
                return None
            at = quoted.end()
            continue
        if character == "{":
            depth += 1
        elif character == "}":
            if not depth and text.startswith("}}", at):
                return at
            depth = max(0, depth - 1)
        at += 1
    return None
