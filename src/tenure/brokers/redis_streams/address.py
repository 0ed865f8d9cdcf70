"""``redis://[user:password@]host[:port][/database][?namespace=…]``, and ``rediss://`` for TLS.

The driver would take any setting of its own from a URL, and before those that are given to it
here: another protocol, other time-outs, text instead of bytes. So a URL has the options that say
where the server is and who comes, and no others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec import Struct
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError

from tenure.model.errors import UnknownBroker
from tenure.wire.addresses import shown_address

ANSWERS_WITHIN = 3.0
"""Seconds, for one call; longer than a reader is left waiting on the server."""
_CONNECTS_WITHIN = 2.0
_CONNECTIONS = 8
_EXAMPLE = "redis://localhost:6379/0"
_NAMESPACE = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_DATABASE = re.compile(r"/?[0-9]*", re.ASCII)
_OPTIONS = ("namespace", "db", "username", "password")
_TLS_OPTIONS = (
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_cert_reqs",
    "ssl_check_hostname",
)


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
    if not _DATABASE.fullmatch(parts.path):
        raise UnknownBroker(f"{shown_address(url)}: the database is a number, as in {_EXAMPLE}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    _check_options(url, options, tls=parts.scheme == "rediss")
    namespace = options.pop("namespace", "tenure")
    if not _NAMESPACE.fullmatch(namespace):
        raise UnknownBroker(
            "the broker URL's namespace may have letters, digits, '_', '.' and '-', 64 at most"
        )
    driver_url = parts._replace(query=urlencode(options)).geturl()
    return Address(url=driver_url, namespace=namespace, place=place)


def _check_options(url: str, names: Iterable[str], *, tls: bool) -> None:
    allowed = (*_OPTIONS, *_TLS_OPTIONS) if tls else _OPTIONS
    strange = [name for name in names if name not in allowed]
    if strange:
        shown = shown_address(url)  # what it does not show may be a part of a password
        named = [repr(name) for name in strange if f"{name}=" in shown]
        raise UnknownBroker(
            f"{shown}: a broker URL has no option {' or '.join(named) or 'like that'}; it may have "
            f"{', '.join(_OPTIONS)}, and with rediss:// {', '.join(_TLS_OPTIONS)}"
        )


def open_pool(address: Address) -> BlockingConnectionPool:
    """Connects when it is first used. ``UnknownBroker`` for values that the driver does not take.

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
    except (TypeError, ValueError, RedisError) as error:
        raise UnknownBroker(f"no URL for the broker at {address.place}: {error}") from None
    return pool
