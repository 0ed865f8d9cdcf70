"""Variables a command hands to later steps.

Two ways, both giving text only:

- the file ``$TENURE_OUTPUT``: lines ``KEY=value``, and blocks ``KEY<<EOF`` … ``EOF`` for values of
  several lines (any word may stand for ``EOF``). Read strictly, a mistake names its line: a lost
  variable would be noticed steps later, or never.
- with ``export_vars``, lines ``TENURE_EXPORT:KEY=value`` on standard output (``BOPS_EXPORT:`` and
  ``KEY: value``, also in ``{}``, from older files). Read leniently, as ever: output is for people
  too, and a line that is no export is just a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tenure.model.errors import InvalidExports
from tenure.workflow.wording import quoted

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_MARK = b"_EXPORT:"
_PREFIXES = (b"TENURE_EXPORT:", b"BOPS_EXPORT:")
LONGEST_LINE = 64 * 1024
MOST = 1024 * 1024
"""Bytes of exports that are kept from standard output."""


def parse_exports(data: bytes) -> dict[str, str]:
    """The contents of ``$TENURE_OUTPUT``. A later line wins. ``InvalidExports`` names the line."""
    exported: dict[str, str] = {}
    lines = enumerate(data.removesuffix(b"\n").split(b"\n"), start=1)
    for number, raw in lines:
        line = _decoded(raw, number)
        if not line.strip():
            continue
        name, separator, rest = _split(line)
        if not _NAME.fullmatch(name):
            raise _mistake(number, f"{quoted(name)} is no variable name; write KEY=value")
        if not separator:
            raise _mistake(number, f"nothing is given to {name}; write {name}=value")
        exported[name] = rest if separator == "=" else _block(name, rest, number, lines)
    return exported


def _split(line: str) -> tuple[str, str, str]:
    """At the first ``=`` or ``<<``, whichever comes first."""
    name, separator, value = line.partition("=")
    if "<<" in name:
        return line.partition("<<")
    return name, separator, value


def _block(name: str, end: str, started: int, lines: Iterator[tuple[int, bytes]]) -> str:
    if not end.strip():
        raise _mistake(started, f"{name}<< needs a word that ends the block, as in {name}<<EOF")
    value: list[str] = []
    for number, raw in lines:
        line = _decoded(raw, number)
        if line == end:
            return "\n".join(value)
        value.append(line)
    raise _mistake(started, f"the block of {name} is never ended by a line {quoted(end)}")


def _decoded(raw: bytes, number: int) -> str:
    try:
        line = raw.decode()
    except UnicodeDecodeError as error:
        raise _mistake(number, "is not UTF-8 text; encode what is not text") from error
    if "\0" in line:
        raise _mistake(number, "holds a NUL character, which no environment can hold")
    return line


def _mistake(number: int, what: str) -> InvalidExports:
    return InvalidExports(f"$TENURE_OUTPUT, line {number}: {what}")


class PrintedExports:
    """Finds export lines in a stream while it passes by. Holds at most one line of it."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}
        self._size = 0
        self._line = b""
        self._overlong = False
        self._problem: str | None = None

    def feed(self, data: bytes) -> None:
        head, newline, tail = data.rpartition(b"\n")
        if newline:
            whole = self._line + head
            if _MARK in whole:
                first, *rest = whole.split(b"\n")
                self._look_at(first, cut=self._overlong)
                for line in rest:
                    self._look_at(line)
            self._line, self._overlong = b"", False
        if not self._overlong:
            self._line += tail
        if len(self._line) > LONGEST_LINE:
            self._line, self._overlong = self._line[:LONGEST_LINE], True

    def finish(self) -> dict[str, str]:
        """What was found. ``InvalidExports`` if something was too long to be kept."""
        self._look_at(self._line, cut=self._overlong)
        if self._problem is not None:
            raise InvalidExports(self._problem)
        return self._found

    def _look_at(self, line: bytes, *, cut: bool = False) -> None:
        line = line.strip()
        if not line.startswith(_PREFIXES):
            return
        if cut or len(line) > LONGEST_LINE:
            self._problem = f"an exported line is longer than {LONGEST_LINE} bytes; use a file"
            return
        self._size += len(line)
        if self._size > MOST:
            self._problem = f"more than {MOST} bytes were exported on standard output"
            return
        self._found.update(_payload(line.partition(b":")[2]))


def _payload(raw: bytes) -> dict[str, str]:
    text = raw.decode(errors="replace").replace("\0", "\ufffd").strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    found = re.search("[=:]", text)
    if found is None:
        return {}
    name, value = text[: found.start()].strip(), text[found.end() :].strip()
    return {name: value} if name else {}
