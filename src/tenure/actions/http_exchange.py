"""One request over the wire, and what comes back of it.

A connection of its own, closed afterwards; no cookies, no proxy and no credentials from the
environment. Nothing is decompressed, so what is read is bounded by what was sent.
"""

from __future__ import annotations

import os

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientError,
    ClientResponse,
    ClientResponseError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    InvalidURL,
    ServerDisconnectedError,
    TCPConnector,
    TooManyRedirects,
)

from tenure._version import __version__
from tenure.actions.http_answers import MOST, Answer
from tenure.actions.http_asking import Request
from tenure.actions.http_redirects import cautious
from tenure.model.errors import TransportError
from tenure.workflow.durations import show_duration

_MOST_REDIRECTS = 10
_ALWAYS = {"User-Agent": f"tenure/{__version__}", "Accept-Encoding": "identity"}


async def exchange(request: Request) -> Answer:
    """``TransportError`` if there is no answer."""
    try:
        async with (
            _session(request) as session,
            session.request(
                request.method,
                request.url,
                data=request.body,
                headers=request.headers,
                allow_redirects=request.follow_redirects,
                max_redirects=_MOST_REDIRECTS,
            ) as response,
        ):
            body = await _beginning(response)
            return Answer(
                status=response.status,
                reason=response.reason or "",
                location=response.headers.get("location", ""),
                body=body[:MOST],
                cut=len(body) > MOST,
            )
    except (ClientError, OSError) as error:
        raise TransportError(_why(error, request)) from error


def _session(request: Request) -> ClientSession:
    return ClientSession(
        connector=TCPConnector(ssl=request.verify, force_close=True),
        timeout=ClientTimeout(total=request.timeout),
        headers=_ALWAYS,
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        trace_configs=[cautious()],
    )


async def _beginning(response: ClientResponse) -> bytes:
    body = bytearray()
    while len(body) <= MOST and (chunk := await response.content.readany()):
        body += chunk
    return bytes(body)


def _why(error: ClientError | OSError, request: Request) -> str:
    """In our words: the library's may hold the whole URL."""
    match error:
        case ClientConnectorDNSError():
            return "the name of its host cannot be resolved"
        case ClientConnectorCertificateError():
            why = getattr(error.certificate_error, "verify_message", "")
            return f"its certificate is not accepted: {why}"
        case TimeoutError():
            return f"no whole answer within {show_duration(request.timeout)}"
        case TooManyRedirects():
            return f"redirected more than {_MOST_REDIRECTS} times"
        case InvalidURL():
            return "the url, or where it redirects to, cannot be asked"
        case ServerDisconnectedError():
            return "the connection was closed without an answer"
        case ClientResponseError():
            return "the answer is not HTTP"
        case OSError() if error.errno:
            return f"no connection: {os.strerror(error.errno)}"
    return "the connection was lost"
