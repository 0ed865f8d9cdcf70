"""What a receiver may send in answer to one request.

The parser reads all it is given at once, and nothing else of this process runs meanwhile. A
receiver could so stall every run: with interim answers (1xx) without end, with more after its
answer was complete, with a body in a million chunks. So the parser gets one head at a time, then
the rest in small pieces; what goes beyond bounds it never sees.

The status decides. Once it is known no fault in what follows changes it: the rest then counts as
over, and the connection is not used again.
"""

from __future__ import annotations

import re

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from msgspec import Struct

from tenure.notifiers.http.failures import NoEndOfIt, NotHttp
from tenure.notifiers.http.wording import LOOKED_AT

_MOST_INTERIM = 8
"""Answers of the kind 1xx before the one that counts. One or two are usual."""
_LARGEST_HEAD = 64 * 1024
"""Bytes up to the end of the answer's head, interim answers included."""
_PIECE = 4096
_END_OF_HEAD = re.compile(rb"(?:\A|\n)\r?\n")
"""At the beginning it may end a line only, of which the other half came before: no harm."""
_SWITCHING = 101
_OF_USE = frozenset({b"retry-after", b"location"})


class Reply(Struct, frozen=True):
    """An answer, as far as it came."""

    status: int
    reason: str
    headers: dict[bytes, bytes]
    """Those of use to us, named in lower case."""
    beginning: bytes
    """Of its body."""


class Answers:
    """Reads the answers that come over one connection, each after ``expect``. ``rest_bytes`` is
    what follows the head of one, as it comes over the wire."""

    def __init__(self, rest_bytes: int) -> None:
        self._rest_bytes = rest_bytes
        self._parser = HttpResponseParser(self)
        # Receivers that somebody wrote in an afternoon end lines with a bare line feed.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )
        self.expect()

    def expect(self) -> None:
        """A request goes out now."""
        self.status: int | None = None
        """Of the answer, once its head is complete."""
        self.whole = False
        """Nothing of it is missing."""
        self.goes_on = False
        """It is whole, nothing else came, and the receiver keeps the connection for the next."""
        self._interim = 0
        self._head_left = _LARGEST_HEAD
        self._rest_left = self._rest_bytes
        self._reason = b""
        self._headers: dict[bytes, bytes] = {}
        self._beginning = b""

    def feed(self, data: bytes) -> bool:
        """Whether the answer is over: whole, or as much of it as is looked at. ``NotHttp`` and
        ``NoEndOfIt`` if there will be none."""
        while data and not self.whole:
            piece = self._a_head(data) if self.status is None else self._some_of_the_rest(data)
            if not piece:
                return True
            try:
                self._parser.feed_data(piece)
            except (HttpParserError, HttpParserUpgrade) as error:
                if self.status is None:
                    raise NotHttp(str(error)) from None
                self.goes_on = False
                return True
            data = data[len(piece) :]
        if data:  # nobody asked for more
            self.goes_on = False
        return self.whole

    def reply(self) -> Reply:
        """Once there is a status."""
        if self.status is None:
            raise RuntimeError("there is no answer yet")
        reason = self._reason.decode(errors="replace")
        return Reply(self.status, reason, self._headers, self._beginning)

    def _a_head(self, data: bytes) -> bytes:
        end = _END_OF_HEAD.search(data)
        piece = data[: end.end()] if end else data
        self._head_left -= len(piece)
        if self._interim > _MOST_INTERIM or self._head_left < 0:
            raise NoEndOfIt("it sends without end and never answers")
        return piece

    def _some_of_the_rest(self, data: bytes) -> bytes:
        piece = data[: min(_PIECE, self._rest_left)]
        self._rest_left -= len(piece)
        return piece

    # What the parser calls

    def on_message_begin(self) -> None:
        if self.whole:
            raise NotHttp("a second answer")  # it stops here

    def on_status(self, part: bytes) -> None:
        self._reason += part

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in _OF_USE and self.status is None:  # or else it is a trailer
            self._headers.setdefault(name, value)

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != _SWITCHING:
            self._interim += 1
            self._reason, self._headers = b"", {}
        else:
            self.status = status

    def on_body(self, part: bytes) -> None:
        if len(self._beginning) < LOOKED_AT:
            self._beginning += part[: LOOKED_AT - len(self._beginning)]

    def on_message_complete(self) -> None:
        if self.status is not None:
            self.whole = True
            self.goes_on = self._parser.should_keep_alive()
