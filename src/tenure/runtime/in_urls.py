"""Secrets as they may stand in URLs: percent-encoded.

Every program leaves other characters as they are, so a secret has more encoded forms than could be
listed, and one that they all decode to. That one is looked for in output that is decoded, but only
as far as the secrets need it: letters and digits after a stray ``%`` stay what they are. Escapes
never overlap, and whether three bytes are one does not depend on what is before them: so what is
held back can be decoded without what was given out.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import product
from urllib.parse import unquote_to_bytes

from tenure.runtime.needles import Needles

_ESCAPE = re.compile(rb"%[0-9A-Fa-f]{2}")
_BEGUN = re.compile(rb"%[0-9A-Fa-f]?\Z")
_NEVER_ENCODED = re.compile(rb"[A-Za-z0-9_.~-]*")
_LONGER = 2
"""Bytes that an escape has more than what it stands for."""


class InUrls:
    """Of some secrets those that encoding would change."""

    def __init__(self, texts: Iterable[str]) -> None:
        secrets = [text.encode(errors="replace") for text in texts]
        secrets = [each for each in secrets if not _NEVER_ENCODED.fullmatch(each)]
        # Some programs take what is in a secret for escapes, and leave these alone or undo them.
        secrets += [unquote_to_bytes(each) for each in secrets]
        self.forms = Needles(set(map(_folded, secrets)))
        """What is to be looked for where ``read`` has decoded output."""
        encoded = {byte for each in secrets for byte in _NEVER_ENCODED.sub(b"", each)}
        self._byte_of = {digits: bytes((byte,)) for byte in encoded for digits in _hex(byte)}

    def read(self, data: bytes) -> Decoded | None:
        """``None`` if it reads as it is, as most output does: two looks tell, however many secrets
        there are."""
        if self.forms and (b"%" in data or b"+" in data):
            return Decoded(data, self._byte_of)
        return None

    def may_become(self, begun: bytes, wanted: int) -> bool:
        """Whether an escape that begins like this may stand for that byte of a form."""
        return any(
            digits.startswith(begun[1:])
            for digits, byte in self._byte_of.items()
            if _folded(byte)[0] == wanted
        )


class Decoded:
    """``data`` decoded, and where in it each byte comes from."""

    def __init__(self, data: bytes, byte_of: Mapping[bytes, bytes]) -> None:
        self._data = data
        self._byte_of = byte_of
        first, *rest = data.split(b"%")
        parts = [first]
        for part in rest:
            byte = byte_of.get(part[:_LONGER])
            parts.append(b"%" + part if byte is None else byte + part[_LONGER:])
        self.text = _folded(b"".join(parts))
        begun = _BEGUN.search(data, max(len(data) - _LONGER, 0))
        self.begun = b"" if begun is None else begun[0]
        """An escape that is cut off at the end; ``text`` has it as it is."""

    def place(self, offset: int) -> int:
        """Of a byte of ``text``, in the data."""
        if offset == len(self.text):
            return len(self._data)
        return offset + _LONGER * bisect_left(self._escapes, offset)

    @cached_property
    def _escapes(self) -> list[int]:
        found = (each for each in _ESCAPE.finditer(self._data) if each[0][1:] in self._byte_of)
        return [each.start() - _LONGER * number for number, each in enumerate(found)]


def _hex(byte: int) -> set[bytes]:
    """In capitals or not, and one of each."""
    spelled = ({digit, digit.upper()} for digit in f"{byte:02x}")
    return {"".join(each).encode() for each in product(*spelled)}


def _folded(data: bytes) -> bytes:
    """In a query ``+`` is a space, elsewhere itself: here both are the same."""
    return data.replace(b"+", b" ")
