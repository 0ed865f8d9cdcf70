"""Masks secret values in everything that leaves the executing process.

A value is searched for as it is, escaped for JSON, HTML, XML and URLs, as a Python ``repr``, and as
Latin-1; in base64 and in hex, also with other data around it (``Authorization: Basic``); of a value
with several lines also every line that is long enough not to be ordinary text, since tools print
lines one by one. Output arrives in chunks: bytes that may begin a secret are held
back, at most the length of its longest form. Occurrences that overlap or touch become one mask, so
that neither their number nor their length shows.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain, product
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

_PREFIX_BYTES = 16
"""Compared first, since comparing all bytes needs a copy."""
_ESCAPE = re.compile(rb"&#?[0-9A-Za-z]+;|\\(?:u[0-9A-Fa-f]{4}|.)", re.DOTALL)


class _Group(NamedTuple):
    """Forms with escapes that have a part in common."""

    common: bytes
    """Contained in all of them."""
    more: Mapping[bytes, Sequence[bytes]]
    """The forms, by their part up to the end of their first escape."""


Groups = Sequence[tuple[bytes, Sequence[_Group]]]
"""Each with a byte that all forms in it contain."""


class _Begun(NamedTuple):
    """The forms that may have begun, by the last byte of the data."""

    forms: Sequence[bytes]
    escaped: Groups
    """Grouped by their part up to the begin of their first escape."""
    reach: int
    """Length of the longest of ``escaped``."""


class TextSearch:
    """Searches for many texts ("forms") at once in chunks of data.

    A secret with a quote in it has dozens of escaped forms. Most output contains none of these
    escapes, so forms are grouped by them and a few tests exclude most.
    """

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
        """Whether any form is in ``data``."""
        return any(form in data for form in self._possible(data))

    def places(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Begin and end of each occurrence."""
        for form in self._possible(data):
            start = data.find(form)
            while start >= 0:
                yield start, start + len(form)
                start = data.find(form, start + 1)

    def begun(self, data: bytes) -> int:
        """The length of the longest end of ``data`` that may begin a form."""
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
        """The forms that may have begun where ``byte`` is the last. Few forms contain a newline, so
        for most output there are none."""
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
        """Whether its part before the first escape also begins a form without escapes, with which
        it is held back: it has to be searched for only from there on."""
        before = self._head(form)[:-1]
        return any(len(each) > len(before) and each.startswith(before) for each in self._plain)

    def _fewest_groups(self) -> Groups:
        """For one secret grouping by the beginning is best, for the many lines of a key grouping by
        the escape."""
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
        """The part up to the first byte of its first escape."""
        return form[: self._escape[form].start() + 1]


def _those_in(data: bytes, groups: Groups) -> list[_Group]:
    return [
        group for byte, each in groups if byte in data for group in each if group.common in data
    ]


def beginnings(data: bytes, form: bytes) -> Iterator[int]:
    """Lengths of ends of ``data`` that are proper beginnings of ``form``, longest first."""
    start = max(len(data) - len(form) + 1, 0)
    while (start := data.find(form[:1], start)) >= 0:
        if form.startswith(data[start : start + _PREFIX_BYTES]) and form.startswith(data[start:]):
            yield len(data) - start
        start += 1


_PERCENT_ESCAPE = re.compile(rb"%[0-9A-Fa-f]{2}")
_ESCAPE_BEGUN = re.compile(rb"%[0-9A-Fa-f]?\Z")
_NEVER_ENCODED = re.compile(rb"[A-Za-z0-9_.~-]*")
_EXTRA_BYTES = 2
"""An escape is longer than its byte by this much."""


class InUrls:
    """Percent-encoded secrets.

    Programs encode different characters, so a secret has too many encoded forms to list, and one
    that they all decode to. That one is searched for in decoded output; only escapes of bytes that
    occur in secrets are decoded. Escapes never overlap, and whether three bytes are one does not
    depend on what precedes them, so held-back bytes can be decoded by themselves.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        secrets = [text.encode(errors="replace") for text in texts]
        secrets = [each for each in secrets if not _NEVER_ENCODED.fullmatch(each)]
        # Some programs take parts of a secret for escapes, and keep or decode them.
        secrets += [unquote_to_bytes(each) for each in secrets]
        self.forms = TextSearch(set(map(_folded, secrets)))
        """The forms to search for in decoded output."""
        encoded = {byte for each in secrets for byte in _NEVER_ENCODED.sub(b"", each)}
        self._byte_of = {digits: bytes((byte,)) for byte in encoded for digits in _hex(byte)}

    def read(self, data: bytes) -> Decoded | None:
        """``data`` decoded; ``None`` if there is nothing to decode."""
        if self.forms and (b"%" in data or b"+" in data):
            return Decoded(data, self._byte_of)
        return None

    def may_continue(self, begun: bytes, wanted: int) -> bool:
        """Whether an escape that begins like ``begun`` may encode the byte ``wanted``."""
        return any(
            digits.startswith(begun[1:])
            for digits, byte in self._byte_of.items()
            if _folded(byte)[0] == wanted
        )


class Decoded:
    """``data`` decoded, with the position in it of each decoded byte."""

    def __init__(self, data: bytes, byte_of: Mapping[bytes, bytes]) -> None:
        self._data = data
        self._byte_of = byte_of
        first, *rest = data.split(b"%")
        parts = [first]
        for part in rest:
            byte = byte_of.get(part[:_EXTRA_BYTES])
            parts.append(b"%" + part if byte is None else byte + part[_EXTRA_BYTES:])
        self.text = _folded(b"".join(parts))
        begun = _ESCAPE_BEGUN.search(data, max(len(data) - _EXTRA_BYTES, 0))
        self.begun = b"" if begun is None else begun[0]
        """An incomplete escape at the end; ``text`` has it undecoded."""

    def place(self, offset: int) -> int:
        """The position in the data of a byte of ``text``."""
        if offset == len(self.text):
            return len(self._data)
        return offset + _EXTRA_BYTES * bisect_left(self._escapes, offset)

    @cached_property
    def _escapes(self) -> list[int]:
        found = (
            each for each in _PERCENT_ESCAPE.finditer(self._data) if each[0][1:] in self._byte_of
        )
        return [each.start() - _EXTRA_BYTES * number for number, each in enumerate(found)]


def _hex(byte: int) -> set[bytes]:
    """The hex digits of a byte, in every combination of upper and lower case."""
    spelled = ({digit, digit.upper()} for digit in f"{byte:02x}")
    return {"".join(each).encode() for each in product(*spelled)}


def _folded(data: bytes) -> bytes:
    """``+`` is a space in a query and itself elsewhere: both are treated alike."""
    return data.replace(b"+", b" ")


_ESCAPES = re.compile(r"\\(?:u[0-9a-f]{4}|.)", re.DOTALL)


class _Style(NamedTuple):
    """How a JSON library escapes strings."""

    ascii_only: bool = True
    also: str = ""
    """Characters that are escaped besides, so that the JSON can be embedded in HTML."""
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


_JSON_STYLES = (
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
    """Forms of a text in JSON, with duplicates."""
    for style in _JSON_STYLES:
        yield style.written(text)


_ALWAYS = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_CHARACTERS = "&<>\"'"
_MARKUP_STYLES: tuple[Mapping[str, str], ...] = (
    _ALWAYS,  # in text, where quotes are not escaped
    _ALWAYS | {'"': "&quot;"},  # in XML attributes
    _ALWAYS | {'"': "&quot;", "'": "&#x27;"},  # html.escape, Django, React
    _ALWAYS | {'"': "&quot;", "'": "&#39;"},  # Ruby, lodash
    _ALWAYS | {'"': "&quot;", "'": "&#039;"},  # PHP
    _ALWAYS | {'"': "&quot;", "'": "&apos;"},  # PHP for XML, Java
    _ALWAYS | {'"': "&#34;", "'": "&#39;"},  # Jinja2, Go's html
    _ALWAYS | {'"': "&#34;", "'": "&#39;", "+": "&#43;"},  # Go's html/template
    _ALWAYS | {'"': "&quot;", "'": "&#x27;", "/": "&#x2F;"},  # as OWASP advises
    _ALWAYS | {'"': "&quot;", "'": "&#x27;", "`": "&#x60;"},  # underscore
    _ALWAYS | {'"': "&quot;", "'": "&#x27;", "`": "&#x60;", "=": "&#x3D;"},  # Handlebars
    _ALWAYS | {'"': "&quot;", "'": "&#39;", "/": "&#x2F;", "`": "&#x60;", "=": "&#x3D;"},
    {each: f"&#{ord(each)};" for each in _CHARACTERS},
    {each: f"&#x{ord(each):x};" for each in _CHARACTERS},
    {each: f"&#x{ord(each):X};" for each in _CHARACTERS},
)
"""``&`` goes first: it is what the others are replaced with."""


def written_in_markup(text: str) -> Iterator[str]:
    """Forms of a text in HTML and XML, with duplicates."""
    for style in _MARKUP_STYLES:
        written = text
        for character, escape in style.items():
            written = written.replace(character, escape)
        yield written
        if not written.isascii():  # in an ASCII document
            yield written.encode("ascii", errors="xmlcharrefreplace").decode()


_MIN_LINE_CHARS = 8
"""A shorter line of a secret is not searched for by itself."""


def texts_of(secret: str) -> Iterator[str]:
    """The secret, its encodings, and those of its lines that are long enough."""
    lines = secret.splitlines() if "\n" in secret else []
    for text in (secret, secret.strip(), *(each for each in lines if len(each) >= _MIN_LINE_CHARS)):
        if text:
            yield text
    for text in {secret, secret.strip()}:
        yield from _encodings(text.encode(errors="replace"))
        with suppress(UnicodeEncodeError):  # what HTTP clients make of a password
            yield from _encodings(text.encode("latin-1"))


def _encodings(data: bytes) -> Iterator[str]:
    """``data`` in hex and base64. In base64 three bytes are four characters, so there are three
    forms: with none, one or two bytes in the group before its own. Characters that also depend on
    the bytes around are left out, except at the end, where there may be none."""
    if len(data) < SHORTEST_TELLING:
        return  # so short an encoding is in ordinary text
    yield data.hex()
    yield data.hex().upper()
    for before, begin in enumerate((0, 2, 3)):
        padded = b64encode(bytes(before) + data).decode()
        for end in ((before + len(data)) * 8 // 6, len(padded.rstrip("=")), len(padded)):
            yield padded[begin:end]
            yield padded[begin:end].replace("+", "-").replace("/", "_")


def forms_of(text: str) -> Iterator[bytes]:
    for written in chain(_written(text), written_in_markup(text)):
        yield written.encode(errors="replace")
    if not text.isascii():
        yield from _wrong_encodings(text)


def _written(text: str) -> Iterator[str]:
    yield text
    yield from written_in_json(text)
    for shown in (repr, ascii):
        yield shown(text)[1:-1]
        yield shown(f'"{text}')[2:-1]  # with single quotes escaped
    if not text.isprintable():
        yield "".join(map(_printable, text))


def _printable(character: str) -> str:
    """As in a diff: only unprintable characters are escaped."""
    shown = character.isprintable() or character in "\n\t"
    return character if shown else repr(character)[1:-1]


def _wrong_encodings(text: str) -> Iterator[bytes]:
    """UTF-8 read as Latin-1 (as servers do with headers, and as ``repr`` of bytes), or the other
    way round."""
    for written in _written(text.encode(errors="replace").decode("latin-1")):
        yield written.encode()
    with suppress(UnicodeEncodeError):
        data = text.encode("latin-1")
        yield data
        yield data.decode(errors="replace").encode()


MASK = "***"
_CUT = "…"
"""The end of a shortened text."""
_MASK = MASK.encode()
SHORTEST_TELLING = 4
"""A shorter secret is masked too, and much ordinary text with it."""


def is_too_short(secret: str) -> bool:
    """Whether a secret is so short that ordinary text contains it; space around it does not
    count."""
    return len(secret.strip() or secret) < SHORTEST_TELLING


class Masks:
    """Masks the secrets of one run; false if there are none."""

    def __init__(self, secrets: Iterable[object]) -> None:
        texts = {text for each in secrets for text in texts_of(str(each))}
        self._in_urls = InUrls(texts)
        written = {form for text in texts for form in forms_of(text)}
        self._forms = TextSearch({*written, *self._in_urls.forms})

    def __bool__(self) -> bool:
        return bool(self._forms)

    def stream(self) -> MaskedStream:
        return MaskedStream(self._forms, self._in_urls)

    def text(self, text: str) -> str:
        """``text`` masked. The beginning of a secret at the end of a shortened text is masked
        too."""
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
        """``data`` masked. ``cut``: it is only a beginning; bytes at its end that may begin a
        secret are left out."""
        if not self._forms:
            return data
        stream = self.stream()
        return stream.feed(data) + (b"" if cut else stream.finish())

    def is_in(self, value: Any) -> bool:
        """Whether a secret is anywhere in a value of texts, numbers, lists and mappings."""
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

    def __init__(self, forms: TextSearch, in_urls: InUrls) -> None:
        self._forms = forms
        self._in_urls = in_urls
        self._held = b""
        self._masked: int | None = None
        """Number of held bytes that belong to the mask returned last; ``None`` if the last bytes
        returned were no mask."""

    @property
    def holds_back(self) -> bool:
        """Whether bytes that may begin a secret are held back."""
        return bool(self._held)

    def feed(self, data: bytes) -> bytes:
        """Add a chunk; the masked bytes that need not be held back."""
        held = self._held + data
        read = self._in_urls.read(held)
        until = len(held) - self._forms.begun(held)
        if read is not None:
            until = min(until, self._certain(read))
        return self._give_out(held, read, until)

    def finish(self) -> bytes:
        """The rest, at the end of the stream."""
        return self._give_out(self._held, self._in_urls.read(self._held), len(self._held))

    def _certain(self, read: Decoded) -> int:
        """The position up to which no percent-encoded secret has begun."""
        until = read.place(len(read.text) - self._in_urls.forms.begun(read.text))
        if not read.begun:
            return until
        whole = read.text.removesuffix(read.begun)
        for form in self._in_urls.forms:
            for length in chain(beginnings(whole, form), (0,)):
                if self._in_urls.may_continue(read.begun, form[length]):
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
        """Begin and end of secrets, from left to right; those that overlap or touch are one."""
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
