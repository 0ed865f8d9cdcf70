"""What a receiver may send in answer to one request.

The client parses all that came at once, and nothing else of this process runs meanwhile. A receiver
could so stall every run: with interim answers (1xx) without end, with more after its answer was
complete, with a body in a million chunks. Here the parser gets one head at a time, then the rest in
small pieces; what goes beyond bounds it never sees, and the connection ends.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from aiohttp import ClientError
from aiohttp.client_proto import ResponseHandler

from tenure.model.errors import TenureError

_MOST_INTERIM = 8
"""Answers of the kind 1xx before the one that counts. One or two are usual."""
_LARGEST_HEAD = 64 * 1024
"""Bytes up to the end of the answer's head, interim answers included."""
_PIECE = 4096
_END_OF_HEAD = re.compile(rb"(?:\A|\n)\r?\n")
"""At the beginning it may end a line only, of which the other half came before: no harm."""


class NoEndOfIt(TenureError, ClientError):
    """A receiver sends and sends and never answers."""


class BoundedAnswers(ResponseHandler):
    """One connection. ``rest_bytes`` is what follows the head of an answer, as it comes over the
    wire."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rest_bytes: int) -> None:
        super().__init__(loop)
        self._rest_bytes = rest_bytes
        self._expect_an_answer()

    def _expect_an_answer(self) -> None:
        self._answered = False
        self._interim = 0
        self._head_left = _LARGEST_HEAD
        self._rest_left = self._rest_bytes

    def set_response_params(self, **params: Any) -> None:
        """The client calls this before each request."""
        self._expect_an_answer()
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        if not data:  # the client goes on with what it holds itself
            super().data_received(data)
        while data and self.transport is not None and not self.transport.is_closing():
            piece = self._some_of_the_rest(data) if self._answered else self._a_head(data)
            if not piece:
                self.force_close()
                self.transport.abort()
                return
            super().data_received(piece)
            data = data[len(piece) :]

    def feed_data(self, data: Any, size: int = 0) -> None:
        """A head was read. Interim ones are counted and forgotten."""
        message, _ = data
        if 100 <= message.code < 200 and message.code != 101:
            self._interim += 1
        else:
            self._answered = True
            super().feed_data(data, size)

    def _a_head(self, data: bytes) -> bytes:
        end = _END_OF_HEAD.search(data)
        piece = data[: end.end()] if end else data
        self._head_left -= len(piece)
        if self._interim > _MOST_INTERIM or self._head_left < 0:
            self.set_exception(NoEndOfIt("it sends without end and never answers"))
            return b""
        return piece

    def _some_of_the_rest(self, data: bytes) -> bytes:
        if self._payload is None or self._payload.is_eof():  # nobody asked for more
            return b""
        piece = data[: min(_PIECE, self._rest_left)]
        self._rest_left -= len(piece)
        return piece
