"""Where in a Python script a value stands: an expression reading the environment takes its place.

That works wherever Python expects an expression, and nowhere inside a string.
"""

from __future__ import annotations

import tokenize
from collections.abc import Iterator, Sequence

from tenure.model.errors import ExpressionError
from tenure.workflow.templates import Embedded, Part

_STRING_STARTS = {
    kind for name in ("FSTRING_START", "TSTRING_START") if (kind := getattr(tokenize, name, None))
}
_STRING_ENDS = {
    kind for name in ("FSTRING_END", "TSTRING_END") if (kind := getattr(tokenize, name, None))
}


def put_references(parts: Sequence[Part], variables: Sequence[str]) -> list[str]:
    """``parts`` as script text, each value as its reference. ``ExpressionError``."""
    values = [part for part in parts if isinstance(part, Embedded)]
    names = iter(variables)
    sketch = "".join(next(names) if isinstance(part, Embedded) else _raw(part) for part in parts)
    inside_comment = _check(sketch, values, variables)
    written: list[str] = []
    names = iter(variables)
    for part in parts:
        if not isinstance(part, Embedded):
            written.append(_raw(part))
            continue
        name = next(names)
        comment = name in inside_comment
        written.append(part.raw if comment else f'__import__("os").environ["{name}"]')
    return written


def _raw(part: Part) -> str:
    return part if isinstance(part, str) else part.raw


def _check(sketch: str, values: Sequence[Embedded], variables: Sequence[str]) -> set[str]:
    """Each variable must be a name of its own. Answers with those that stand in comments."""
    free: set[str] = set()
    comments: set[str] = set()
    for kind, text, in_string in _tokens(sketch):
        if kind == tokenize.NAME and not in_string:
            free.add(text)
        elif kind == tokenize.COMMENT:
            comments.update(name for name in variables if name in text)
    for value, name in zip(values, variables, strict=True):
        if name not in free and name not in comments:
            raise ExpressionError(
                f"{value.raw!r} stands inside a Python string or name",
                hint="put it where an expression may stand, outside of quotes",
                offset=value.offset,
            )
    return comments - free


def _tokens(sketch: str) -> Iterator[tuple[int, str, bool]]:
    depth = 0
    lines = iter(sketch.splitlines(keepends=True))
    try:
        for token in tokenize.generate_tokens(lambda: next(lines, "")):
            depth += token.type in _STRING_STARTS
            yield token.type, token.string, depth > 0
            depth -= token.type in _STRING_ENDS
    except (tokenize.TokenError, SyntaxError) as error:
        raise ExpressionError(
            f"the script cannot be read as Python: {error.args[0]}",
            hint="pass values by name instead: os.environ['name']",
        ) from error
