"""One POST over HTTP, by aiohttp, and the beginning of the answer.

Only the status decides. The rest of an answer, for excerpts and connection reuse, is limited to
``read_timeout`` and ``response_bytes``. No decompression, redirects, cookies or proxies.
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
"""Common servers close idle connections after 5 s; a POST that crosses the close would be lost."""
_DNS_TTL_S = 10
_STOPPED = "stopped while sending: this process is about to end"


class HttpSettings(Struct, frozen=True, kw_only=True):
    """Times are seconds, sizes bytes."""

    total_timeout: float = 15.0
    """For the whole attempt, the wait for a free connection included."""
    connect_timeout: float = 5.0
    """For each address, TLS included."""
    read_timeout: float = 1.0
    """For the body of an answer."""
    response_bytes: int = 16 * 1024
    """Limit of the body."""
    connections: int = 256
    connections_per_host: int = 64
    """A host that hangs must not use all connections."""
    allow_private: bool = False
    """Whether callbacks may be sent to private addresses."""


class Trace(Protocol):
    """Observes requests and answers."""

    def sent(self, headers: dict[str, str]) -> None:
        """Connected, and sent with these headers."""

    def answered(self, status: int, reason: str) -> None: ...


class NoAnswer(TenureError):
    """``str()`` is the reason, without the library's text, which may contain the URL or data of the
    receiver."""


class Client:
    """A pool of connections to addresses that pass ``policy``, for one event loop."""

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
            trace_configs=[] if trace is None else [_trace_config(trace)],
        )

    async def close(self) -> None:
        """Close all connections; active requests fail."""
        await self._session.close()

    async def post(self, url: URL, headers: dict[str, str], body: bytes) -> Answer:
        """Raises ``OffLimits`` for a forbidden address, ``NoAnswer`` without an answer."""
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
                raise NoAnswer(_STOPPED) from None  # so aiohttp ends queued requests
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
        # Only the status matters. A reader of a closed session raises RuntimeError.
        with suppress(TimeoutError, aiohttp.ClientError, RuntimeError):
            async with asyncio.timeout(self._settings.read_timeout):
                while len(read) < self._settings.response_bytes:
                    piece = await content.readany()
                    if not piece:
                        break
                    read += piece
        return bytes(read)

    def _why(self, error: aiohttp.ClientError | OSError) -> str:
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


def _trace_config(trace: Trace) -> aiohttp.TraceConfig:
    async def sent(
        session: aiohttp.ClientSession,
        context: SimpleNamespace,
        request: aiohttp.TraceRequestHeadersSentParams,
    ) -> None:
        trace.sent({name.lower(): value for name, value in request.headers.items()})

    config = aiohttp.TraceConfig()
    config.on_request_headers_sent.append(sent)
    return config
