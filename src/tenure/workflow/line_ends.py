"""Templates keep their line ends. Jinja makes all of them ``\\n`` when it reads one, and could only
write them all alike; but it tells at which line each piece of text began, so each line break can be
given back what it was."""

from __future__ import annotations

import re

from jinja2 import nodes

_LINE_END = re.compile(r"\r\n|\r|\n")


def give_back(tree: nodes.Template, source: str) -> None:
    """To the text in ``tree``, which was read from ``source``. Values have their own."""
    if "\r" not in source:
        return
    ends = _LINE_END.findall(source)
    for text in tree.find_all(nodes.TemplateData):
        first, *rest = text.data.split("\n")
        behind = ends[text.lineno - 1 :]
        text.data = first + "".join(end + line for end, line in zip(behind, rest, strict=False))
