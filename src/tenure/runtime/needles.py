"""Many texts that are looked for at once in what comes in chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_GLANCE = 16
"""Bytes that are compared before all are, which would have to be copied."""


class Needles:
    def __init__(self, forms: Iterable[bytes]) -> None:
        self._forms = tuple(sorted(forms, key=len, reverse=True))
        self._going_on_after: dict[bytes, tuple[bytes, ...]] = {}

    def __len__(self) -> int:
        return len(self._forms)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._forms)

    def are_in(self, data: bytes) -> bool:
        """Whether any of them is."""
        return any(form in data for form in self._forms)

    def places(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Of each: where it begins and where it ends."""
        for form in self._forms:
            start = data.find(form)
            while start >= 0:
                yield start, start + len(form)
                start = data.find(form, start + 1)

    def begun(self, data: bytes) -> int:
        """The length of the longest end of ``data`` that may be the beginning of one."""
        longest = 0
        for form in self._with_end(data[-1:]):
            if len(form) > longest + 1:
                longest = max(longest, next(beginnings(data, form), 0))
        return longest

    def _with_end(self, byte: bytes) -> tuple[bytes, ...]:
        """Those that may have begun where ``byte`` is the last. Lines end in a byte that few have:
        so most output is done with at once, however many there are."""
        forms = self._going_on_after.get(byte)
        if forms is None:
            forms = tuple(form for form in self._forms if byte and byte in form[:-1])
            self._going_on_after[byte] = forms
        return forms


def beginnings(data: bytes, form: bytes) -> Iterator[int]:
    """Lengths of ends of ``data`` that are beginnings of ``form``, and not all of it; longest
    first."""
    start = max(len(data) - len(form) + 1, 0)
    while (start := data.find(form[:1], start)) >= 0:
        if form.startswith(data[start : start + _GLANCE]) and form.startswith(data[start:]):
            yield len(data) - start
        start += 1
