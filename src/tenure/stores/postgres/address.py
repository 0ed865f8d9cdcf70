"""What a ``postgresql://`` URL says: where the server is, and how this process uses it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Self
from urllib.parse import unquote

from msgspec import Struct
from psycopg.conninfo import make_conninfo

from tenure.model.errors import UnknownStore
from tenure.stores.postgres import libpq

_ALWAYS = {
    # Ownership is decided by a server that can write, never by a replica that lags behind.
    "target_session_attrs": "read-write",
}
_UNLESS_GIVEN = {
    "application_name": "tenure",
    "connect_timeout": "10",
    # A server that vanished without a word is noticed by the kernel too, also while idle.
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}
_OF_EACH = ("host", "hostaddr", "port")
_FROM_ANYWHERE = (*_OF_EACH, *_UNLESS_GIVEN)
"""What the environment and service files say of these has to be known here. The rest libpq finds
for itself."""


class Address(Struct, frozen=True, kw_only=True):
    conninfo: str
    place: str
    """For people: without user and password."""
    several: bool = False
    """Servers, one of which is to take writes."""
    connections: int = 2
    """Commits under way at once; reads may have as many."""
    statement_timeout: float = 30.0
    """Seconds after which a call is given up."""
    connect_timeout: float = 10.0
    """Seconds to wait for a connection, new or free."""
    prepared: bool = False
    """Whether statements may be prepared by name: quicker, and wrong behind a pooler that hands out
    another connection for each transaction."""

    wakeups: bool = True
    """Whether to listen for hints, on a connection of its own; through a pooler none arrive."""

    def __repr__(self) -> str:
        """Without what may hold a password."""
        return f"Address({self.place!r})"

    @classmethod
    def parse(cls, url: str) -> Self:
        """libpq's own URL, and settings of ours: ``connections``, ``statement_timeout``,
        ``prepared`` and ``wakeups``. ``UnknownStore`` names what cannot be meant; never with a
        password."""
        bare, settings = _taken_apart(url)
        given = libpq.read_url(bare)
        effective = libpq.in_effect(given)
        servers = one_by_one(effective)
        for server in servers:
            _check(server)
        ours = {name: _read(name, value) for name, value in settings.items()}
        elsewhere = {name: effective[name] for name in _FROM_ANYWHERE if name in effective}
        params = {**_UNLESS_GIVEN, **given, **elsewhere, **_ALWAYS}
        return cls(
            conninfo=make_conninfo(**params),
            place=_place(effective),
            several=len(servers) > 1,
            connect_timeout=_read("connect_timeout", params["connect_timeout"]),
            **ours,
        )


def _taken_apart(url: str) -> tuple[str, dict[str, str]]:
    """What is libpq's, letter by letter as it was, and settings of ours. Where the settings begin
    is for libpq to say: a password may hold a ``?``, but no ``/``."""
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in ("postgresql", "postgres"):
        raise UnknownStore(
            "a PostgreSQL URL begins with postgresql://; an example: postgresql://user@host/tenure"
        )
    login = re.match("[^@/]*@", rest)
    start = login.end() if login else 0
    place, _, query = rest[start:].partition("?")
    ours: dict[str, str] = {}
    theirs: list[str] = []
    for setting in query.split("&"):
        name, _, value = setting.partition("=")
        if unquote(name) in _OURS:
            ours[unquote(name)] = unquote(value)
        elif setting:
            theirs.append(setting)
    settings = f"?{'&'.join(theirs)}" if theirs else ""
    return f"{scheme.lower()}://{rest[:start]}{place}{settings}", ours


def _place(effective: dict[str, str]) -> str:
    places = ",".join(map(name_of, one_by_one(effective)))
    # Before an @ may stand the end of a password that holds a slash.
    _, at, database = effective.get("dbname", "").rpartition("@")
    return f"postgresql://{places}/{'***' if at else ''}{at}{database}"


def one_by_one(given: dict[str, str]) -> list[dict[str, str]]:
    """The settings for each of its servers. (A port stands for all of them, or each has its own.)
    Their numbers fit together: libpq has looked."""
    lists = {name: given[name].split(",") for name in _OF_EACH if name in given}
    servers = []
    for number in range(max(map(len, lists.values()), default=1)):
        own = {name: each[number if len(each) > 1 else 0] for name, each in lists.items()}
        servers.append({**given, **own})
    return servers


def name_of(server: dict[str, str]) -> str:
    """For people, as PostgreSQL itself names a server that is reached without a network."""
    host = server.get("host") or server.get("hostaddr") or "[local]"
    port = server.get("port") or "5432"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _check(server: dict[str, str]) -> None:
    """What libpq would try to reach though it cannot be. It is not shown: it may be a piece of a
    password."""
    host, port = server.get("host", ""), server.get("port") or "5432"
    if "@" in host[1:] and not host.startswith("/"):
        raise UnknownStore(
            "no host has an @ in its name, in the store URL or in PGHOST. If this is part of a "
            "password, write its @ as %40"
        )
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise UnknownStore(
            "a port is a number from 1 to 65535, in the store URL and in PGPORT. If this is part of"
            " a password, write its / as %2F"
        )


def _seconds(value: str) -> float:
    seconds = float(value)
    if not 0 < seconds <= 86400:
        raise ValueError
    return seconds


def _count(value: str) -> int:
    count = int(value)
    if not 1 <= count <= 100:
        raise ValueError
    return count


def _yes_or_no(value: str) -> bool:
    return {"yes": True, "no": False}[value]


_OURS: dict[str, tuple[Callable[[str], Any], str]] = {
    "connections": (_count, "a number from 1 to 100"),
    "statement_timeout": (_seconds, "seconds, at most a day"),
    "prepared": (_yes_or_no, "yes or no"),
    "wakeups": (_yes_or_no, "yes or no"),
}


def _read(name: str, value: str) -> Any:
    read, wanted = _OURS.get(name, (_seconds, "seconds, at most a day"))
    try:
        return read(value)
    except (ValueError, KeyError):
        raise UnknownStore(f"the store URL's {name} is {wanted}, not {value!r}") from None
