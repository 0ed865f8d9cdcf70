"""Colours and signs, one meaning each. A sign always stands beside its word: colour is never the
only carrier."""

from __future__ import annotations

import os
import sys
from typing import IO, Any, NamedTuple

import click

from tenure.cli.display.text import neutral


class Look(NamedTuple):
    sign: str
    ascii: str
    color: str | None
    """``None``: dim. Not bright black, which some colour schemes make invisible."""


LOOKS = {
    "queued": Look("◦", ".", "blue"),
    "pending": Look("·", ".", None),
    "running": Look("●", ">", "cyan"),
    "success": Look("✓", "+", "green"),
    "failed": Look("✗", "x", "red"),
    "skipped": Look("–", "-", None),
    "canceled": Look("⊘", "/", "yellow"),
    "interrupted": Look("!", "!", "magenta"),
    "unreachable": Look("✗", "x", "red"),
    "unknown": Look("?", "?", "magenta"),
}


def sign(status: str) -> str:
    look = LOOKS[status]
    return look.sign if speaks_unicode() else look.ascii


def speaks_unicode() -> bool:
    """Asked of the real stream: a live view puts another in its place."""
    stream = sys.__stdout__
    return stream is None or (stream.encoding or "").lower().startswith("utf")


def in_color(status: str, text: str | None = None) -> str:
    """``text`` in the colour of ``status``; without text the status itself."""
    color = LOOKS[status].color
    shown = status if text is None else text
    return click.style(neutral(shown), fg=color) if color else dim(shown)


def dim(text: str) -> str:
    return click.style(neutral(text), dim=True)


def bold(text: str) -> str:
    return click.style(neutral(text), bold=True)


def say(text: str = "", *, err: bool = False) -> None:
    """One or more lines. Values in ``text`` have been made neutral by whoever put it together."""
    file: IO[Any] = sys.stderr if err else sys.stdout
    try:
        click.echo(text, file=file, color=_has_color(file))
    except OSError:
        if not err:  # an answer that cannot be given; words beside it may go unheard
            raise


def fitting(text: str, file: IO[Any]) -> str:
    """As ``say`` would write it there: without colours where nobody would see them."""
    return text if _has_color(file) else click.unstyle(text)


def complain(text: str) -> None:
    """What went wrong, on stderr."""
    say(f"{click.style('Error:', fg='red')} {neutral(text)}", err=True)


def note(text: str) -> None:
    """Something worth knowing that is no answer: on stderr, so that programs do not read it."""
    say(dim(text), err=True)


def _has_color(file: IO[Any]) -> bool:
    """https://no-color.org"""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return file.isatty()
