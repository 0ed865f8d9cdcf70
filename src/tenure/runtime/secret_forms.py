"""What a secret looks like where it may stand in output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

from tenure.runtime.in_json import written_in_json
from tenure.runtime.in_markup import written_in_markup

_TELLING_LINE = 8
"""Characters a line of a longer secret must have to be looked for by itself."""


def texts_of(secret: str) -> Iterator[str]:
    """The secret, and those of its lines that can be told from ordinary text."""
    lines = secret.splitlines() if "\n" in secret else []
    for text in (secret, secret.strip(), *(each for each in lines if len(each) >= _TELLING_LINE)):
        if text:
            yield text


def forms_of(text: str) -> Iterator[bytes]:
    for written in chain(_written(text), written_in_markup(text)):
        yield written.encode(errors="replace")
    if not text.isascii():
        yield from _misread(text)


def _written(text: str) -> Iterator[str]:
    yield text
    yield from written_in_json(text)
    for shown in (repr, ascii):
        yield shown(text)[1:-1]
        yield shown(f'"{text}')[2:-1]  # what is around it may have its single quotes escaped
    if not text.isprintable():
        yield "".join(map(_printable, text))


def _printable(character: str) -> str:
    """As in a difference of two files: only what a terminal could not show is escaped."""
    shown = character.isprintable() or character in "\n\t"
    return character if shown else repr(character)[1:-1]


def _misread(text: str) -> Iterator[bytes]:
    """By programs that take UTF-8 for Latin-1, as servers do with headers, or the other way. Python
    shows bytes the same way."""
    for written in _written(text.encode(errors="replace").decode("latin-1")):
        yield written.encode()
    with suppress(UnicodeEncodeError):
        data = text.encode("latin-1")
        yield data
        yield data.decode(errors="replace").encode()
