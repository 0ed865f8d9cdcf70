"""Secrets as they stand in JSON: every library escapes what it must, and some more."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

_ESCAPES = re.compile(r"\\(?:u[0-9a-f]{4}|.)", re.DOTALL)


class _Style(NamedTuple):
    ascii_only: bool = True
    also: str = ""
    """What is escaped though it need not be, so that JSON may stand in a page."""
    slash: str = "/"
    capitals: bool = False

    def written(self, text: str) -> str:
        parts = text.split('"') if '"' in self.also else [text]
        parts = [json.dumps(each, ensure_ascii=self.ascii_only)[1:-1] for each in parts]
        written = '"'.join(parts)
        for each in self.also:
            written = written.replace(each, f"\\u{ord(each):04x}")
        written = written.replace("/", self.slash)
        return _ESCAPES.sub(_in_capitals, written) if self.capitals else written


def _in_capitals(escape: re.Match[str]) -> str:
    return escape[0] if len(escape[0]) == 2 else f"\\u{escape[0][2:].upper()}"


_STYLES = (
    _Style(),
    _Style(ascii_only=False),
    _Style(slash=r"\/"),  # PHP
    _Style(slash=r"\/", ascii_only=False),
    _Style(capitals=True),
    _Style(also="<>&", ascii_only=False),  # Go
    _Style(also="<>&"),  # Ruby on Rails
    _Style(also="<>&'"),  # Jinja2's tojson
    _Style(also="<>&'=", ascii_only=False),  # Gson
    _Style(also="<>&'\"+`", capitals=True),  # .NET
)


def written_in_json(text: str) -> Iterator[str]:
    """Most of them are the same for most texts."""
    for style in _STYLES:
        yield style.written(text)
