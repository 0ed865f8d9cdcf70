"""``&&``, ``||``, ``!`` and ``${name.path}`` in ``when``, brought to Jinja's spelling."""

from __future__ import annotations

import re

from tenure.model.errors import ExpressionError

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
    """The condition as Jinja reads it. Text in quotes stays as it is; an empty one is true."""
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
