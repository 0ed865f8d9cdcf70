"""The connections all attempts share."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Sequence
from functools import partial
from ssl import SSLContext

from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, TraceConfig
from aiohttp.client_proto import ResponseHandler

from tenure._version import __version__
from tenure.notifiers.http.guard import GuardedResolver, Judge, guarded_sockets
from tenure.notifiers.http.lookup import LookUp
from tenure.notifiers.http.receiving import BoundedAnswers
from tenure.notifiers.http.settings import HttpSettings

_IDLE = 4.0
"""Below the five seconds after which common servers close an idle connection: a POST that crosses
such a close is lost, and only the relay may send it again."""
_FAREWELL = 0.1
"""For the end of a TLS connection. Many receivers never answer the goodbye; asyncio would keep the
socket for half a minute."""
_NAMES_KEPT = 10

_ALWAYS = {
    "content-type": "application/json",
    "user-agent": f"tenure/{__version__}",
    "accept": "*/*",
    "accept-encoding": "identity",
}


def new_session(
    settings: HttpSettings,
    look_up: LookUp,
    judge: Judge,
    tls: SSLContext | None,
    traces: Sequence[TraceConfig] = (),
) -> ClientSession:
    """Belongs to the loop that runs now."""
    with warnings.catch_warnings():
        # The parameter is deprecated because nobody was thought to need it.
        warnings.filterwarnings("ignore", "The ssl_shutdown_timeout", DeprecationWarning)
        connector = TCPConnector(
            resolver=GuardedResolver(look_up, judge),
            socket_factory=guarded_sockets(judge),
            ssl=tls or True,
            limit=settings.connections,
            limit_per_host=settings.connections_per_host,
            keepalive_timeout=_IDLE,
            ttl_dns_cache=_NAMES_KEPT,
            ssl_shutdown_timeout=_FAREWELL,
        )
    # There is no public way to say who reads. If this has no effect any more, tests tell.
    connector._factory = partial(_new_reader, settings.response_bytes)
    return ClientSession(
        connector=connector,
        timeout=ClientTimeout(total=settings.total_timeout, sock_connect=settings.connect_timeout),
        headers=_ALWAYS,
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        trace_configs=list(traces),
    )


def _new_reader(rest_bytes: int) -> ResponseHandler:
    return BoundedAnswers(asyncio.get_running_loop(), rest_bytes)
