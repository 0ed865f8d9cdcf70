"""What a ``postgresql://`` URL says: where the server is, and how this process uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from msgspec import Struct
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tenure.model.errors import UnknownStore

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


class Address(Struct, frozen=True, kw_only=True):
    conninfo: str
    place: str
    """For people: without user and password."""
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

    @classmethod
    def parse(cls, url: str) -> Self:
        """libpq's own URL, and settings of ours: ``connections``, ``statement_timeout``,
        ``prepared`` and ``wakeups``. ``UnknownStore`` names what cannot be meant; never with a
        password."""
        parts = urlsplit(url)
        ours: dict[str, Any] = {}
        theirs: list[tuple[str, str]] = []
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            if name in _OURS:
                ours[name] = _read(name, value)
            else:
                theirs.append((name, value))
        bare = urlunsplit(parts._replace(query=urlencode(theirs)))
        try:
            given = {key: str(value) for key, value in conninfo_to_dict(bare).items()}
        except psycopg.ProgrammingError as error:
            raise UnknownStore(f"no PostgreSQL URL: {str(error).strip()}") from error
        params = {**_UNLESS_GIVEN, **given, **_ALWAYS}
        return cls(
            conninfo=make_conninfo(**params),
            place=_place(given),
            connect_timeout=_read("connect_timeout", params["connect_timeout"]),
            **ours,
        )


def _place(given: dict[str, str]) -> str:
    hosts = given.get("host", "localhost").split(",")
    ports = given.get("port", "5432").split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    places = ",".join(f"{host}:{port}" for host, port in zip(hosts, ports, strict=False))
    return f"postgresql://{places}/{given.get('dbname', '')}"


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
