"""Mistakes in workflow files as compilers show theirs: an editor can jump to each."""

from __future__ import annotations

from collections.abc import Iterable

from tenure.cli.display.paint import bold, dim
from tenure.cli.display.text import counted, one_line
from tenure.model.errors import Mistake


def mistake_line(mistake: Mistake) -> str:
    """``deploy.yaml:7:14: steps[1].timeout: …; did you mean …?``"""
    place = mistake.source
    if mistake.line is not None:
        place += f":{mistake.line}:{mistake.column}"
    words = [bold(one_line(place))]
    if mistake.path:
        words.append(one_line(mistake.path))
    words.append(one_line(mistake.message))
    return ": ".join(words) + (dim(f"; {one_line(mistake.hint)}") if mistake.hint else "")


def how_many(mistakes: Iterable[object]) -> str:
    return counted(len(list(mistakes)), "mistake")
