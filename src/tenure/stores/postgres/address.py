"""Parsing of ``postgresql://`` URLs: libpq's parameters and Tenure's settings."""

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
    "target_session_attrs": "read-write",  # a replica lags behind and must not decide ownership
    "client_encoding": "UTF8",  # whatever the environment and the database say
}
_UNLESS_GIVEN = {
    "application_name": ("tenure", "PGAPPNAME"),
    "connect_timeout": ("10", "PGCONNECT_TIMEOUT"),
    # Detect a server that is gone, also on idle connections.
    "keepalives_idle": ("30", ""),
    "keepalives_interval": ("10", ""),
    "keepalives_count": ("3", ""),
}
"""Our defaults, and the environment variable that takes precedence."""


class Address(Struct, frozen=True, kw_only=True):
    conninfo: str
    place: str
    """For messages: without user and password."""
    servers: int = 1
    connections: int = 2
    """For writes; reads have as many."""
    statement_timeout: float = 30.0
    """Seconds for a call."""
    connect_timeout: float = 10.0
    """Seconds to wait for a connection, new or free."""
    prepared: bool = False
    """Whether to prepare statements by name: faster, but wrong behind a pooler that assigns another
    connection to each transaction."""
    wakeups: bool = True
    """Whether to listen for hints, on a separate connection; they do not pass a pooler."""

    def __repr__(self) -> str:
        """Without the password."""
        return f"Address({self.place!r})"

    @classmethod
    def parse(cls, url: str) -> Self:
        """A libpq URL with our settings: ``connections``, ``statement_timeout``, ``prepared`` and
        ``wakeups``. Raises ``UnknownStore``, never with the password in it."""
        bare, settings = _split(url)
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


def _split(url: str) -> tuple[str, dict[str, str]]:
    """libpq's URL, otherwise unchanged, and our settings. A password may hold a ``?``, but no
    ``/``."""
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
        # Without the cause: libpq may quote the URL.
        raise UnknownStore(f"no PostgreSQL URL: {_error_of(url)}") from None
    except UnicodeError:
        raise UnknownStore("no PostgreSQL URL: it holds bytes that are not UTF-8") from None


def _error_of(url: str) -> str:
    """libpq's message for the URL without possible secrets: all before the last @, and values."""
    scheme, _, rest = url.partition("://")
    before, at, behind = rest.rpartition("@")
    place, mark, query = behind.partition("?")
    names = [setting.partition("=") for setting in query.split("&")] if query else []
    # Text without an equals sign may be a part of a password with an ampersand.
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
    """Host and port of each; a single port is for all of them."""
    hosts = _listed(given, "host", "PGHOST")
    if not any(hosts):
        hosts = _listed(given, "hostaddr", "PGHOSTADDR")
    ports = _listed(given, "port", "PGPORT")
    if len(ports) not in (1, len(hosts)):
        raise UnknownStore(
            f"no valid PostgreSQL servers: {len(ports)} port numbers for {len(hosts)} hosts"
        )
    return [(host, ports[i if len(ports) > 1 else 0]) for i, host in enumerate(hosts)]


def _listed(given: dict[str, str], name: str, variable: str) -> list[str]:
    return (given.get(name) or os.environ.get(variable, "")).split(",")


def _place(servers: list[tuple[str, str]], database: str) -> str:
    places = ",".join(_name(host, port) for host, port in servers)
    # The end of a password with a slash may precede an @.
    _, at, database = database.rpartition("@")
    return f"postgresql://{places}/{'***' if at else ''}{at}{database}"


def _name(host: str, port: str) -> str:
    """For messages; ``[local]`` as in PostgreSQL's own."""
    host, port = host or "[local]", port or "5432"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _check(host: str, port: str) -> None:
    """Refuse impossible names that libpq would try. They are not shown: they may be a part of a
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
