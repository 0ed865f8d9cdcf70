"""What a ``postgresql://`` URL says: where the server is, and how this process uses it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from math import ceil
from typing import Any, Self
from urllib.parse import unquote

import psycopg
from msgspec import Struct
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tenure.model.errors import UnknownStore

_ALWAYS = {
    # Ownership is decided by a server that can write, never by a replica that lags behind.
    "target_session_attrs": "read-write",
    # Whatever the environment and the database say: all texts are UTF-8.
    "client_encoding": "UTF8",
}
_UNLESS_GIVEN = {
    "application_name": ("tenure", "PGAPPNAME"),
    "connect_timeout": ("10", "PGCONNECT_TIMEOUT"),
    # A server that vanished without a word is noticed by the kernel too, also while idle.
    "keepalives_idle": ("30", ""),
    "keepalives_interval": ("10", ""),
    "keepalives_count": ("3", ""),
}
"""Our defaults, and the variable of the environment that goes before them."""


class Address(Struct, frozen=True, kw_only=True):
    conninfo: str
    place: str
    """For people: without user and password."""
    servers: int = 1
    """How many are named; one of them is to take writes."""
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
        given = _read_url(bare)
        servers = _servers(given)
        for host, port in servers:
            _check(host, port)
        ours = {name: _read(name, value) for name, value in settings.items()}
        params = {
            name: default
            for name, (default, variable) in _UNLESS_GIVEN.items()
            if variable not in os.environ
        }
        params |= given | _ALWAYS
        wait = params.get("connect_timeout") or os.environ["PGCONNECT_TIMEOUT"]
        connect_timeout: float = _read("connect_timeout", wait)
        params["connect_timeout"] = str(ceil(connect_timeout))  # libpq knows whole seconds only
        return cls(
            conninfo=make_conninfo(**params),
            place=_place(servers, given.get("dbname", os.environ.get("PGDATABASE", ""))),
            servers=len(servers),
            connect_timeout=ceil(connect_timeout),
            **ours,
        )


def _taken_apart(url: str) -> tuple[str, dict[str, str]]:
    """What is libpq's, letter by letter as it was, and settings of ours. A password may hold a
    ``?``, but no ``/``."""
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


def _read_url(url: str) -> dict[str, str]:
    try:
        return {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except psycopg.ProgrammingError:
        # Without what caused it: libpq likes to quote the URL.
        raise UnknownStore(f"no PostgreSQL URL: {_what_is_wrong(url)}") from None
    except UnicodeError:
        raise UnknownStore("no PostgreSQL URL: it holds bytes that are not UTF-8") from None


def _what_is_wrong(url: str) -> str:
    """In libpq's words about the same URL without what may be a secret: everything up to the last
    @, and every value."""
    scheme, _, rest = url.partition("://")
    before, at, behind = rest.rpartition("@")
    place, mark, query = behind.partition("?")
    names = [setting.partition("=") for setting in query.split("&")] if query else []
    # What has no equals sign may be the rest of a password that was split at an ampersand.
    bare = "&".join(f"{name}=***" if equals else "***" for name, equals, _ in names)
    try:
        conninfo_to_dict(f"{scheme}://{'***' if before else ''}{at}{place}{mark}{bare}")
    except psycopg.ProgrammingError as error:
        return str(error).strip()
    return (
        "a value in it, or what stands before its last @, is not percent-encoded: write special "
        "characters as %40 for @, %25 for %"
    )


def _servers(given: dict[str, str]) -> list[tuple[str, str]]:
    """Host and port of each. A port stands for all of them, or each has its own."""
    hosts = _listed(given, "host", "PGHOST")
    if not any(hosts):
        hosts = _listed(given, "hostaddr", "PGHOSTADDR")
    ports = _listed(given, "port", "PGPORT")
    if len(ports) not in (1, len(hosts)):
        raise UnknownStore(
            f"no PostgreSQL server can be meant: {len(ports)} port numbers to {len(hosts)} hosts"
        )
    return [(host, ports[i if len(ports) > 1 else 0]) for i, host in enumerate(hosts)]


def _listed(given: dict[str, str], name: str, variable: str) -> list[str]:
    return (given.get(name) or os.environ.get(variable, "")).split(",")


def _place(servers: list[tuple[str, str]], database: str) -> str:
    places = ",".join(_name(host, port) for host, port in servers)
    # Before an @ may stand the end of a password that holds a slash.
    _, at, database = database.rpartition("@")
    return f"postgresql://{places}/{'***' if at else ''}{at}{database}"


def _name(host: str, port: str) -> str:
    """For people, as PostgreSQL itself names a server that is reached without a network."""
    host, port = host or "[local]", port or "5432"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _check(host: str, port: str) -> None:
    """What libpq would try to reach though it cannot be. It is not shown: it may be a piece of a
    password."""
    if "@" in host[1:] and not host.startswith("/"):
        raise UnknownStore(
            "no host has an @ in its name, in the store URL or in PGHOST. If this is part of a "
            "password, write its @ as %40"
        )
    if port and not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
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
