"""What libpq makes of a URL, of the environment and of service files: asked, never imitated.

No refusal shows a password, also not one that was typed where libpq expects something else.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo, PGconn

from tenure.model.errors import UnknownStore

_NO_KIND_OF_SERVER = "no-kind-of-server"


def read_url(url: str) -> dict[str, str]:
    """Its settings. ``UnknownStore``."""
    try:
        return {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except psycopg.ProgrammingError:
        # Without what caused it: that quotes the URL.
        raise UnknownStore(f"no PostgreSQL URL: {_what_is_wrong(url)}") from None
    except UnicodeError:
        raise UnknownStore("no PostgreSQL URL: it holds bytes that are not UTF-8") from None


def in_effect(given: dict[str, str]) -> dict[str, str]:
    """With what the environment and a service file add to it. ``UnknownStore`` if they cannot be
    meant together.

    The only function of libpq that puts all of them together is the one that begins to connect. A
    setting that cannot be, the last that it looks at, makes it stop before it looks for a server.
    """
    asked = make_conninfo(**{**given, "target_session_attrs": _NO_KIND_OF_SERVER})
    begun = PGconn.connect_start(asked.encode())
    try:
        said = begun.get_error_message()
        if _NO_KIND_OF_SERVER not in said:
            raise UnknownStore(f"no PostgreSQL server can be meant: {said}")
        return {each.keyword.decode(): each.val.decode() for each in begun.info if each.val}
    finally:
        begun.finish()


def _what_is_wrong(url: str) -> str:
    """In libpq's words about the same URL without its secrets: it likes to quote."""
    try:
        conninfo_to_dict(_without_secrets(url))
    except psycopg.ProgrammingError as error:
        return str(error).strip()
    return (
        "a password in it, or what stands before its last @, is not percent-encoded: write special "
        "characters as %40 for @, %25 for %"
    )


def _without_secrets(url: str) -> str:
    """Everything up to the last @ may be a password, whatever libpq takes it for."""
    scheme, _, rest = url.partition("://")
    before, at, behind = rest.rpartition("@")
    place, mark, query = behind.partition("?")
    return f"{scheme}://{'***' if before else ''}{at}{place}{mark}{'&'.join(_harmless(query))}"


def _harmless(query: str) -> Iterator[str]:
    shown = {each.keyword.decode() for each in Conninfo.get_defaults() if not each.dispchar}
    for setting in query.split("&") if query else ():
        name, equals, _ = setting.partition("=")
        if unquote(name) in shown:
            yield setting
        else:
            yield f"{name}=***" if equals else "***"
