"""Text for the terminal: made safe, measured, coloured; times, durations and store URLs.

Output of hosts, and names and messages in a record, may hold anything: escape sequences that move
the cursor or rename the window, characters that reverse text, bytes that are not text.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import IO, Any, NamedTuple
from unicodedata import combining, east_asian_width
from urllib.parse import unquote

import click

from tenure.wire.addresses import shown_address

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]{0,1024}(?:\x07|\x1b\\)"  # window titles, links, device strings
    r"|\x1b(?![\[\]PX^_])[0-~]"
)
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def neutral(text: str) -> str:
    """Without escape sequences; other terminal control characters show as ``�``."""
    if text.isprintable() or text.replace("\n", "").isprintable():
        return text
    return _UNSAFE.sub("\ufffd", _SEQUENCE.sub("", text))


def one_line(text: str) -> str:
    return neutral(" ".join(text.split()))


def cells(text: str) -> int:
    """Its width in terminal columns."""
    if text.isascii():
        return len(text)
    return sum(
        0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text
    )


def shorten(text: str, width: int) -> str:
    """Shortened to at most ``width`` columns."""
    if cells(text) <= width:
        return text
    kept, used = [], 1
    for char in text:
        used += cells(char)
        if used > width:
            break
        kept.append(char)
    return "".join(kept) + "…"


def padded(text: str, width: int) -> str:
    return text + " " * max(width - cells(text), 0)


def fitted(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """The cells of a table row. A column of width zero is left out."""
    pairs = zip(row, widths, strict=True)
    return [padded(shorten(cell, width), width) for cell, width in pairs if width]


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


# Colours and signs, one meaning each. A sign always stands beside its word: colour alone never
# carries meaning.


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
    """Checks the real stream, since a live view replaces it."""
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
    """Print one or more lines. Values in ``text`` must have been made neutral by the caller."""
    file: IO[Any] = sys.stderr if err else sys.stdout
    try:
        click.echo(text, file=file, color=_has_color(file))
    except OSError:
        if not err:  # an answer that cannot be written is an error; a message on stderr is not
            raise


def fitting(text: str, file: IO[Any]) -> str:
    """As ``say`` would write it there: without colours if ``file`` shows none."""
    return text if _has_color(file) else click.unstyle(text)


def complain(text: str) -> None:
    """Print an error to stderr."""
    say(f"{click.style('Error:', fg='red')} {neutral(text)}", err=True)


def note(text: str) -> None:
    """Print a note to stderr, so that programs do not read it as the answer."""
    say(dim(text), err=True)


def _has_color(file: IO[Any]) -> bool:
    """https://no-color.org"""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return file.isatty()


# Times and durations.


def took(seconds: float) -> str:
    """``0.3s``, ``12.3s``, ``2m 05s``, ``1h 04m``, ``3d 02h``."""
    seconds = max(seconds, 0.0)
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02}m"
    return f"{whole // 86400}d {whole % 86400 // 3600:02}h"


def between(started: datetime | None, ended: datetime | None) -> str:
    """The duration; empty while one of them is unknown."""
    if started is None or ended is None:
        return ""
    return took((ended - started).total_seconds())


def ago(then: datetime | None, now: datetime) -> str:
    """``4s ago``, ``3m ago``, ``2d ago``."""
    if then is None:
        return ""
    seconds = max(int((now - then).total_seconds()), 0)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit} ago"
    return f"{seconds}s ago"


def local(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def clock(moment: datetime) -> str:
    return f"{moment.astimezone():%H:%M:%S}"


# Store URLs, short and without passwords.


# Commands to type next.


_WITH_A_STORE = re.compile(
    r"\btenure (?:run|submit|status|list|watch|logs|cancel|retry|approve|annotate|explain|worker|"
    r"reconcile|doctor|callbacks [a-z]+|token [a-z]+|store [a-z]+)\b(?! --store)"
)
_given_store: str | None = None


def remember_store(given: str | None) -> None:
    """What ``--store`` of this command said. A password is not repeated: ``TENURE_STORE`` is the
    place for such a store."""
    global _given_store
    _given_store = given if given is not None and shown_address(given) == given else None


def to_type(text: str) -> str:
    """``text`` with commands that reach the same store as this one when they are pasted."""
    if _given_store is None:
        return text
    return _WITH_A_STORE.sub(lambda found: f"{found[0]} --store {quote(_given_store or '')}", text)


def place_of(url: str) -> str:
    """``~/.local/share/tenure/runs.db``, ``postgresql://me:***@db/runs``, ``memory:``."""
    if url.startswith("sqlite:///") and not {"?", "#"} & set(url):
        return _from_home(Path(unquote(url.removeprefix("sqlite:///"))).absolute())
    return shown_address(url)


def _from_home(path: Path) -> str:
    try:
        return str(Path("~") / path.relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(path)
