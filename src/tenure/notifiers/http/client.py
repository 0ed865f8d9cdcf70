"""One POST over HTTP, by aiohttp, and the beginning of the answer.

The status decides, so it alone is waited for as long as ``total_timeout`` allows. The rest of an
answer only serves to use the connection again and to quote from: it gets a moment and a few
kilobytes, then the connection is closed. Nothing is decompressed, no redirect followed, no cookie
kept, no proxy taken from the environment.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import suppress
from types import SimpleNamespace
from typing import Protocol

import aiohttp
from msgspec import Struct
from yarl import URL

from tenure.model.errors import TenureError
from tenure.notifiers.http.answer import Answer, quoted
from tenure.notifiers.http.guard import (
    AddressPolicy,
    GuardedResolver,
    LookUp,
    OffLimits,
    guarded_sockets,
)

_IDLE_TIMEOUT_S = 4.0
"""Below the five after which common servers close an idle connection: a POST that crosses such a
close is lost, and only the relay may send it again."""
_DNS_TTL_S = 10
"""A receiver that moves is found again soon."""
_STOPPED = "stopped while sending: this process is about to end"


class HttpSettings(Struct, frozen=True, kw_only=True):
    """Times are seconds, sizes bytes."""

    total_timeout: float = 15.0
    """For the whole attempt, the wait for a free connection included."""
    connect_timeout: float = 5.0
    """For each address that is tried, TLS included."""
    read_timeout: float = 1.0
    """For the rest of an answer once its status is known."""
    response_bytes: int = 16 * 1024
    """What is read of an answer behind its head."""
    connections: int = 256
    """In use at once."""
    connections_per_host: int = 64
    """Fewer than in all: a host that hangs must not use up what others need."""
    allow_private: bool = False
    """Whether callbacks may go to addresses inside our own network."""


class Trace(Protocol):
    """Is told what goes over the wire."""

    def sent(self, headers: dict[str, str]) -> None:
        """There is a connection, and a request goes over it with these."""

    def answered(self, status: int, reason: str) -> None: ...


class NoAnswer(TenureError):
    """``str()`` says why, in our own words: a library's may hold the URL, or what the receiver
    sent."""


class Client:
    """A pool of connections to addresses that pass ``policy``. Belongs to one loop."""

    def __init__(
        self,
        settings: HttpSettings,
        policy: AddressPolicy,
        look_up: LookUp,
        tls: ssl.SSLContext | bool,
        trace: Trace | None,
    ) -> None:
        self._settings = settings
        self._trace = trace
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=GuardedResolver(look_up, policy),
                socket_factory=guarded_sockets(policy),
                ttl_dns_cache=_DNS_TTL_S,
                ssl=tls,
                limit=settings.connections,
                limit_per_host=settings.connections_per_host,
                keepalive_timeout=_IDLE_TIMEOUT_S,
            ),
            timeout=aiohttp.ClientTimeout(
                total=settings.total_timeout, sock_connect=settings.connect_timeout
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=settings.response_bytes,
            trace_configs=[] if trace is None else [_telling(trace)],
        )

    async def close(self) -> None:
        """Ends all connections; requests under way fail."""
        await self._session.close()

    async def post(self, url: URL, headers: dict[str, str], body: bytes) -> Answer:
        """``OffLimits`` if it may not go there, ``NoAnswer`` if nothing came of it."""
        try:
            async with self._session.post(
                url, data=body, headers=headers, allow_redirects=False
            ) as response:
                return await self._answer(response)
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error.__cause__, OffLimits):
                raise error.__cause__ from None
            why = _STOPPED if self._session.closed else self._why(error)
            raise NoAnswer(why) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._session.closed and task is not None and not task.cancelling():
                raise NoAnswer(_STOPPED) from None  # aiohttp ends so what waits for its turn
            raise

    async def _answer(self, response: aiohttp.ClientResponse) -> Answer:
        answer = Answer(
            status=response.status,
            reason=quoted(response.reason or ""),
            retry_after=response.headers.get("retry-after", ""),
            location=response.headers.get("location", ""),
            body=await self._beginning(response.content),
        )
        if self._trace is not None:
            self._trace.answered(answer.status, answer.reason)
        return answer

    async def _beginning(self, content: aiohttp.StreamReader) -> bytes:
        if content.is_eof():
            return content.read_nowait()
        read = bytearray()
        # There is a status, and it decides. A reader whose session was closed meanwhile raises
        # RuntimeError.
        with suppress(TimeoutError, aiohttp.ClientError, RuntimeError):
            async with asyncio.timeout(self._settings.read_timeout):
                while len(read) < self._settings.response_bytes:
                    piece = await content.readany()
                    if not piece:
                        break
                    read += piece
        return bytes(read)

    def _why(self, error: aiohttp.ClientError | OSError) -> str:
        """Why there was no answer."""
        cause = error.__cause__
        match error:
            case aiohttp.ClientConnectorDNSError():
                why = error.os_error.strerror or "no answer"
                return f"its name cannot be resolved: {quoted(why)}"
            case _ if isinstance(cause, ssl.SSLCertVerificationError):
                return f"its TLS certificate is not accepted: {quoted(cause.verify_message)}"
            case _ if isinstance(cause, ssl.SSLError):
                return f"no TLS connection: {quoted(cause.reason or 'the handshake failed')}"
            case aiohttp.ConnectionTimeoutError():
                return f"no connection within {self._settings.connect_timeout:g} s"
            case TimeoutError() if not error.errno:
                return f"no answer within {self._settings.total_timeout:g} s"
            case aiohttp.ServerDisconnectedError():
                return "it closed the connection without an answer"
            case aiohttp.ClientResponseError():
                return "its answer is not HTTP"
            case OSError() if error.errno:
                return f"connection failed: {os.strerror(error.errno)}"
        return "connection lost"


def _telling(trace: Trace) -> aiohttp.TraceConfig:
    async def sent(
        session: aiohttp.ClientSession,
        context: SimpleNamespace,
        request: aiohttp.TraceRequestHeadersSentParams,
    ) -> None:
        trace.sent({name.lower(): value for name, value in request.headers.items()})

    config = aiohttp.TraceConfig()
    config.on_request_headers_sent.append(sent)
    return config
