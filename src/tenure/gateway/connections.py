"""Connections that cost little, whatever the other side does.

uvicorn by itself waits for headers, for bodies that nobody reads and for answers to be taken for as
long as bytes drip, and keeps all headers it is sent. Here each of these has an end:

=====================  ==========================================================================
headers                ``header_seconds`` and ``header_bytes``; more are read past and not kept
a body                 ``body_seconds``, whether or not somebody wants to read it
an answer              ``idle_seconds`` in which nothing of it is taken
connections            so many; beyond, only who asks whether the process lives is answered
refused requests       a second in which what still comes is read past, so that who sends it
                       gets to read why: closed at once, the connection would be torn down with
                       the answer on its way
=====================  ==========================================================================
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tenure.gateway.deadlines import Deadline
from tenure.gateway.gathering import GatheringTransport
from tenure.gateway.live.sending import TRANSPORT
from tenure.gateway.parts import Limits
from tenure.gateway.problems import HEADERS_TOO_LARGE, MALFORMED
from tenure.gateway.refusing import raw_answer, refusing, too_many_connections

Counting = Callable[[ASGIApp], ASGIApp]

_FOR_ANSWER = 1.0
"""Seconds that whoever reads a body has for saying that it came too slowly."""
_LINGER = 1.0
_ALWAYS = (b"/healthz", b"/readyz")


def guarded(limits: Limits, counted: Counting) -> type[asyncio.Protocol]:
    """``counted``: as all answers are, also those given here."""
    too_large = counted(refusing(HEADERS_TOO_LARGE, "shorten the path, the query or the headers"))
    too_many = counted(too_many_connections)

    class GuardedProtocol(HttpToolsProtocol):
        _heard = 0
        _kept = 0
        _in_body = False

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._headers, self._body, self._taking = Deadline(), Deadline(), Deadline()
            self._lingering = Deadline()
            self.transport = GatheringTransport(transport, self.loop)
            self._expect_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            for deadline in (self._headers, self._body, self._taking, self._lingering):
                deadline.met()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._lingering.runs:
                return
            if self._headers.runs:
                self._heard += len(data)
            super().data_received(data)
            if self._headers.runs and self._heard > limits.header_bytes:
                self._refuse(raw_answer(HEADERS_TOO_LARGE, "they do not end"))
            elif self._in_body:
                seconds = limits.body_seconds + _FOR_ANSWER
                self._body.begin(self.loop, seconds, self.transport.close)

        # What uvicorn would answer by itself

        def send_400_response(self, msg: str) -> None:
            self._refuse(raw_answer(MALFORMED, "this is not HTTP/1.1"))

        def _unsupported_upgrade_warning(self) -> None:
            """It was answered as if nothing had been asked: no reason to fill the log."""

        def _refuse(self, answer: bytes) -> None:
            self._headers.met()
            if self.transport.is_closing() or self._lingering.runs:
                return
            self.transport.write(answer)
            if self.transport.can_write_eof():
                self.transport.write_eof()
                self._lingering.begin(self.loop, _LINGER, self.transport.close)
            else:  # TLS knows no half of a connection
                self.transport.close()

        # As a request comes in

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self.scope[TRANSPORT] = self.transport  # type: ignore[literal-required]
            self._kept = 0
            if not self._headers.runs:
                self._expect_headers()

        def on_url(self, url: bytes) -> None:
            self._kept += len(url)
            if self._kept <= limits.header_bytes:
                super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            self._kept += len(name) + len(value)
            if self._kept <= limits.header_bytes:
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._headers.met()
            self._in_body = True
            self.app = self.config.loaded_app
            if self._kept > limits.header_bytes:
                self.app = too_large
            elif len(self.connections) > limits.connections and self.url not in _ALWAYS:
                self.app = too_many
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            self._in_body = False
            self._body.met()
            super().on_message_complete()

        def _expect_headers(self) -> None:
            self._heard = 0
            self._headers.begin(self.loop, limits.header_seconds, self.transport.close)

        # As the answer goes out

        def pause_writing(self) -> None:
            super().pause_writing()
            self._taking.begin(self.loop, limits.idle_seconds, self.transport.abort)

        def resume_writing(self) -> None:
            self._taking.met()
            super().resume_writing()

    return GuardedProtocol
