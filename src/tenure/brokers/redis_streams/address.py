"""``redis://[user:password@]host[:port][/database][?namespace=…]``, and ``rediss://`` for TLS."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec import Struct
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Disconnected

from tenure.model.errors import UnknownBroker
from tenure.wire.addresses import shown_address

ANSWERS_WITHIN = 3.0
"""Seconds, for one call; longer than a reader is left waiting on the server."""
_CONNECTS_WITHIN = 2.0
_CONNECTIONS = 8
_EXAMPLE = "redis://localhost:6379/0"
_NAMESPACE = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


class Address(Struct, frozen=True, kw_only=True):
    url: str
    namespace: str
    place: str
    """For messages: without user, password and options."""


def read_address(url: str) -> Address:
    """``UnknownBroker``, never repeating a password."""
    try:
        parts = urlsplit(url)
        place = f"{parts.scheme}://{parts.hostname}:{parts.port or 6379}"
    except ValueError:  # whose message may repeat a part of a password
        raise UnknownBroker(
            f"{shown_address(url)} is no Redis URL: its host or port cannot be read; write one "
            f"like {_EXAMPLE}"
        ) from None
    if not parts.hostname:
        raise UnknownBroker(f"a Redis URL names a host: {_EXAMPLE}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    namespace = options.pop("namespace", "tenure")
    if not _NAMESPACE.fullmatch(namespace):
        raise UnknownBroker(
            "the broker URL's namespace may have letters, digits, '_', '.' and '-', 64 at most"
        )
    driver_url = parts._replace(query=urlencode(options)).geturl()
    return Address(url=driver_url, namespace=namespace, place=place)


def open_pool(address: Address) -> BlockingConnectionPool:
    """Connects when it is first used. ``UnknownBroker`` for options that the driver does not know.

    A connection that broke is made again once, at once: it may have been broken for long, as after
    a restart of the server. More patience is for whoever calls.
    """
    try:
        pool = BlockingConnectionPool.from_url(
            address.url,
            max_connections=_CONNECTIONS,
            timeout=ANSWERS_WITHIN,
            socket_timeout=ANSWERS_WITHIN,
            socket_connect_timeout=_CONNECTS_WITHIN,
            retry=Retry(NoBackoff(), 1, supported_errors=(Disconnected,)),
            protocol=2,
        )
        pool.make_connection()  # type: ignore[no-untyped-call]
    except (TypeError, ValueError) as error:
        raise UnknownBroker(f"no URL for the broker at {address.place}: {error}") from None
    return pool
