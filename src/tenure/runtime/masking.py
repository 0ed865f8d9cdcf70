"""Secret values are taken out of everything before it leaves the executing process.

A value is looked for as it is and as it stands inside JSON; of a value of several lines every line
that is long enough to be told from ordinary text, too, since tools print them one by one. Output
comes in chunks: what may be the beginning of a secret is held back until it is known, at most one
byte less than the longest secret. Occurrences that overlap or touch become one mask, so that
neither their number nor their length shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

MASK = "***"
_MASK = MASK.encode()
_TELLING_LINE = 8
"""Characters a line of a longer secret must have to be looked for by itself."""
SHORTEST_TELLING = 3
"""Characters of a secret; a shorter one is masked all the same, and much else with it."""


def is_too_short(secret: str) -> bool:
    """Whether ordinary text is full of it. As with the mask, space around it does not count."""
    return len(secret.strip() or secret) < SHORTEST_TELLING


class Masks:
    """Knows the secrets of one run. ``not masks`` if there are none."""

    def __init__(self, secrets: Iterable[object]) -> None:
        forms = {form.encode(errors="replace") for each in secrets for form in _forms(str(each))}
        self._forms = tuple(sorted(forms, key=len, reverse=True))

    def __bool__(self) -> bool:
        return bool(self._forms)

    def stream(self) -> MaskedStream:
        return MaskedStream(self._forms)

    def text(self, text: str) -> str:
        if not self._forms:
            return text
        stream = self.stream()
        data = text.encode(errors="surrogatepass")
        return (stream.feed(data) + stream.finish()).decode(errors="replace")

    def is_in(self, value: Any) -> bool:
        """Whether a secret is anywhere in a value made of texts, numbers, lists and mappings."""
        if isinstance(value, str):
            data = value.encode(errors="replace")
            return any(form in data for form in self._forms)
        if isinstance(value, dict):
            return any(self.is_in(each) for pair in value.items() for each in pair)
        if isinstance(value, list | tuple):
            return any(map(self.is_in, value))
        return bool(self._forms) and str(value).encode() in self._forms


def _forms(secret: str) -> Iterator[str]:
    lines = secret.splitlines() if "\n" in secret else []
    for text in (secret, secret.strip(), *(each for each in lines if len(each) >= _TELLING_LINE)):
        if text:
            yield text
            yield json.dumps(text)[1:-1]
            yield json.dumps(text, ensure_ascii=False)[1:-1]


class MaskedStream:
    """One stream of output, chunk by chunk."""

    def __init__(self, forms: tuple[bytes, ...]) -> None:
        self._forms = forms
        self._held = b""
        self._masked: int | None = None
        """How many of the held bytes belong to the mask that was given out last; ``None`` if
        something else was."""

    def feed(self, data: bytes) -> bytes:
        """What is now known to be fit to be seen."""
        held = self._held + data
        return self._give_out(held, len(held) - self._in_doubt(held))

    def finish(self) -> bytes:
        """The rest: nothing follows that could complete a secret."""
        return self._give_out(self._held, len(self._held))

    def _in_doubt(self, held: bytes) -> int:
        """The length of the longest end of ``held`` that may be the beginning of a secret."""
        longest = 0
        for form in self._forms:
            start = max(len(held) - len(form) + 1, 0)
            while (start := held.find(form[:1], start)) >= 0 and len(held) - start > longest:
                if form.startswith(held[start:]):
                    longest = len(held) - start
                    break
                start += 1
        return longest

    def _give_out(self, held: bytes, until: int) -> bytes:
        self._held = held[until:]
        if not until:
            return b""
        shown: list[bytes] = []
        place = 0
        masked = None
        for start, end in self._secrets(held):
            if start >= until:
                break
            shown.append(held[place:start])
            if start > 0 or self._masked is None:
                shown.append(_MASK)
            place = min(end, until)
            masked = end - until if end >= until else None
        shown.append(held[place:until])
        self._masked = masked
        return b"".join(shown)

    def _secrets(self, held: bytes) -> Iterator[tuple[int, int]]:
        """Where they are, from left to right; what overlaps or touches is one."""
        found = [(0, self._masked)] if self._masked is not None else []
        for form in self._forms:
            start = held.find(form)
            while start >= 0:
                found.append((start, start + len(form)))
                start = held.find(form, start + 1)
        found.sort()
        whole: tuple[int, int] | None = None
        for start, end in found:
            if whole is not None and start <= whole[1]:
                whole = (whole[0], max(whole[1], end))
                continue
            if whole is not None:
                yield whole
            whole = (start, end)
        if whole is not None:
            yield whole
