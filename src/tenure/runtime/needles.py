"""Many texts that are looked for at once in what comes in chunks.

A secret with a quote in it can be written with escapes in dozens of ways. Most output has none of
these escapes, and so nothing that is written with them: a few looks tell, however many there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

_GLANCE = 16
"""Bytes that are compared before all are, which would have to be copied."""
_ESCAPE = re.compile(rb"&#?[0-9A-Za-z]+;|\\(?:u[0-9A-Fa-f]{4}|.)", re.DOTALL)


class _Group(NamedTuple):
    """Some that are written with escapes, and have something in common."""

    common: bytes
    """All of them contain it."""
    more: Mapping[bytes, Sequence[bytes]]
    """The forms, by what they are until their first escape has ended."""


Groups = Sequence[tuple[bytes, Sequence[_Group]]]
"""Each with a byte that all in it contain."""


class _Begun(NamedTuple):
    """What may have begun, going by the last byte of the data."""

    forms: Sequence[bytes]
    escaped: Groups
    """Common to a group is how it begins, its first escape having begun."""
    reach: int
    """How far these go back."""


class Needles:
    def __init__(self, forms: Iterable[bytes]) -> None:
        self._forms = tuple(sorted(forms, key=len, reverse=True))
        self._escape = {form: found for form in self._forms if (found := _ESCAPE.search(form))}
        self._plain = [form for form in self._forms if form not in self._escape]
        self._groups = self._fewest_groups()
        self._begun: dict[bytes, _Begun] = {}

    def __len__(self) -> int:
        return len(self._forms)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._forms)

    def are_in(self, data: bytes) -> bool:
        """Whether any of them is."""
        return any(form in data for form in self._possible(data))

    def places(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Of each: where it begins and where it ends."""
        for form in self._possible(data):
            start = data.find(form)
            while start >= 0:
                yield start, start + len(form)
                start = data.find(form, start + 1)

    def begun(self, data: bytes) -> int:
        """The length of the longest end of ``data`` that may be the beginning of one."""
        longest = 0
        forms, groups, reach = self._with_end(data[-1:])
        if groups and (found := _those_in(data[-reach:], groups)):
            escaped = (each.more.values() for each in found)
            forms = [*forms, *chain.from_iterable(chain.from_iterable(escaped))]
        for form in forms:
            if len(form) > longest + 1:
                longest = max(longest, next(beginnings(data, form), 0))
        return longest

    def _possible(self, data: bytes) -> Sequence[bytes]:
        if not self._groups or not (found := _those_in(data, self._groups)):
            return self._plain
        pairs = chain.from_iterable(group.more.items() for group in found)
        return [*self._plain, *chain.from_iterable(forms for text, forms in pairs if text in data)]

    def _with_end(self, byte: bytes) -> _Begun:
        """Those that may have begun where ``byte`` is the last. Lines end in a byte that few have:
        so most output is done with at once, however many there are."""
        begun = self._begun.get(byte)
        if begun is None:
            forms = [form for form in self._forms if byte and byte in form[:-1]]
            apart = {form for form in forms if form in self._escape and self._is_covered(form)}
            begun = self._begun[byte] = _Begun(
                [form for form in forms if form not in apart],
                self._grouped(apart, self._head),
                max(map(len, apart), default=0),
            )
        return begun

    def _is_covered(self, form: bytes) -> bool:
        """Whether, until its first escape begins, it begins like one without escapes: it is held
        back with that one, and has to be looked for only from there on."""
        before = self._head(form)[:-1]
        return any(len(each) > len(before) and each.startswith(before) for each in self._plain)

    def _fewest_groups(self) -> Groups:
        """Of one secret the beginning tells best, of the many lines of a key the escapes do."""
        ways = (self._head, lambda form: self._escape[form][0])
        grouped = (self._grouped(self._escape, common) for common in ways)
        return [min(ways, key=lambda way: len(way[1])) for ways in zip(*grouped, strict=True)]

    def _grouped(self, forms: Iterable[bytes], common: Callable[[bytes], bytes]) -> Groups:
        by_byte: dict[bytes, dict[bytes, dict[bytes, list[bytes]]]] = {}
        for form in forms:
            escape = self._escape[form]
            groups = by_byte.setdefault(escape[0][:1], {})
            more = groups.setdefault(common(form), {})
            more.setdefault(form[: escape.end()], []).append(form)
        return [
            (byte, [_Group(text, more) for text, more in groups.items()])
            for byte, groups in by_byte.items()
        ]

    def _head(self, form: bytes) -> bytes:
        """Until its first escape has begun."""
        return form[: self._escape[form].start() + 1]


def _those_in(data: bytes, groups: Groups) -> list[_Group]:
    return [
        group for byte, each in groups if byte in data for group in each if group.common in data
    ]


def beginnings(data: bytes, form: bytes) -> Iterator[int]:
    """Lengths of ends of ``data`` that are beginnings of ``form``, and not all of it; longest
    first."""
    start = max(len(data) - len(form) + 1, 0)
    while (start := data.find(form[:1], start)) >= 0:
        if form.startswith(data[start : start + _GLANCE]) and form.startswith(data[start:]):
            yield len(data) - start
        start += 1
