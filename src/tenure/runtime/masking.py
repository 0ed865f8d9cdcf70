"""Secret values are taken out of everything before it leaves the executing process.

A value is looked for as it is, as it stands inside JSON, HTML, XML and URLs, as Python shows it,
and as Latin-1; of a value of several lines every line that is long enough to be told from ordinary
text, too, since tools print them one by one. Output comes in chunks: what may be the beginning of a
secret is held back until it is known, always less than the longest secret as it would be written.
Occurrences that overlap or touch become one mask, so that neither their number nor their length
shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from tenure.runtime.in_urls import Decoded, InUrls
from tenure.runtime.needles import Needles, beginnings
from tenure.runtime.secret_forms import forms_of, texts_of

MASK = "***"
_CUT = "…"
"""Ends a text that somebody shortened."""
_MASK = MASK.encode()
SHORTEST_TELLING = 4
"""Characters of a secret; a shorter one is masked all the same, and much else with it."""


def is_too_short(secret: str) -> bool:
    """Whether ordinary text is full of it. As with the mask, space around it does not count."""
    return len(secret.strip() or secret) < SHORTEST_TELLING


class Masks:
    """Knows the secrets of one run. ``not masks`` if there are none."""

    def __init__(self, secrets: Iterable[object]) -> None:
        texts = {text for each in secrets for text in texts_of(str(each))}
        self._in_urls = InUrls(texts)
        written = {form for text in texts for form in forms_of(text)}
        self._forms = Needles({*written, *self._in_urls.forms})

    def __bool__(self) -> bool:
        return bool(self._forms)

    def stream(self) -> MaskedStream:
        return MaskedStream(self._forms, self._in_urls)

    def text(self, text: str) -> str:
        """Of a secret that was cut in two when the text was shortened, its beginning goes too."""
        if not self._forms:
            return text
        stream = self.stream()
        said = text.removesuffix(_CUT)
        shown = stream.feed(said.encode(errors="surrogatepass"))
        if said == text or not stream.holds_back:
            shown += stream.finish()
        elif not shown.endswith(_MASK):
            shown += _MASK
        return shown.decode(errors="replace") + text[len(said) :]

    def data(self, data: bytes, *, cut: bool = False) -> bytes:
        """``cut``: it went on; what may be the beginning of a secret at its end is left out."""
        if not self._forms:
            return data
        stream = self.stream()
        return stream.feed(data) + (b"" if cut else stream.finish())

    def is_in(self, value: Any) -> bool:
        """Whether a secret is anywhere in a value made of texts, numbers, lists and mappings."""
        if isinstance(value, str):
            data = value.encode(errors="replace")
            if self._forms.are_in(data):
                return True
            read = self._in_urls.read(data)
            return read is not None and self._in_urls.forms.are_in(read.text)
        if isinstance(value, dict):
            return any(self.is_in(each) for pair in value.items() for each in pair)
        if isinstance(value, list | tuple):
            return any(map(self.is_in, value))
        return bool(self._forms) and str(value).encode() in self._forms


class MaskedStream:
    """One stream of output, chunk by chunk."""

    def __init__(self, forms: Needles, in_urls: InUrls) -> None:
        self._forms = forms
        self._in_urls = in_urls
        self._held = b""
        self._masked: int | None = None
        """How many of the held bytes belong to the mask that was given out last; ``None`` if
        something else was."""

    @property
    def holds_back(self) -> bool:
        """Something that may be the beginning of a secret."""
        return bool(self._held)

    def feed(self, data: bytes) -> bytes:
        """What is now known to be fit to be seen."""
        held = self._held + data
        read = self._in_urls.read(held)
        until = len(held) - self._forms.begun(held)
        if read is not None:
            until = min(until, self._certain(read))
        return self._give_out(held, read, until)

    def finish(self) -> bytes:
        """The rest: nothing follows that could complete a secret."""
        return self._give_out(self._held, self._in_urls.read(self._held), len(self._held))

    def _certain(self, read: Decoded) -> int:
        """Up to where no secret has begun that what follows may complete in a URL."""
        until = read.place(len(read.text) - self._in_urls.forms.begun(read.text))
        if not read.begun:
            return until
        whole = read.text.removesuffix(read.begun)
        for form in self._in_urls.forms:
            for length in chain(beginnings(whole, form), (0,)):
                if self._in_urls.may_become(read.begun, form[length]):
                    until = min(until, read.place(len(whole) - length))
                    break
        return until

    def _give_out(self, held: bytes, read: Decoded | None, until: int) -> bytes:
        self._held = held[until:]
        if not until:
            return b""
        shown: list[bytes] = []
        place = 0
        masked = None
        for start, end in self._secrets(held, read):
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

    def _secrets(self, held: bytes, read: Decoded | None) -> Iterator[tuple[int, int]]:
        """Where they are, from left to right; what overlaps or touches is one."""
        found = [(0, self._masked)] if self._masked is not None else []
        found += self._forms.places(held)
        if read is not None:
            found += (
                (read.place(start), read.place(end))
                for start, end in self._in_urls.forms.places(read.text)
            )
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
