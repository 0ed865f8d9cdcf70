"""A callback target as a request can use it, or why it never can be.

The URL and the headers may come from whoever submitted the run. They must not say what only we may
say (who signed this, what the body is, where a request ends), nor mean one thing to us and another
to the next reader.
"""

from __future__ import annotations

import re
from base64 import b64encode
from functools import lru_cache
from urllib.parse import urlsplit

from msgspec import Struct
from yarl import URL

from tenure.model.errors import TenureError
from tenure.model.snapshot import CallbackTarget

_OURS = frozenset({"content-type", "host"})
_OURS_BY_PREFIX = ("webhook-", "tenure-")
_OF_THE_CONNECTION = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "expect",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_AMBIGUOUS = re.compile(r"[\x00-\x20\x7f-\xa0\\\ud800-\udfff]")
_KNOWN_AT_ONCE = 1024


class UnusableTarget(TenureError, ValueError):
    """Nothing can be sent to this target until somebody changes it; the message says what."""


class NotFromHere(UnusableTarget):
    """This process cannot send there; one that is set up otherwise may."""


class Route(Struct, frozen=True):
    """Where a request goes, with which headers, and what of it no message may show."""

    url: URL
    headers: dict[str, str]
    secrets: tuple[str, ...]


def route_to(target: CallbackTarget) -> Route:
    """``UnusableTarget`` if no request can be made of it."""
    if target.url is None:
        raise UnusableTarget("the target has no url")
    return _route(target.url, tuple(target.headers.items()))


@lru_cache(_KNOWN_AT_ONCE)
def _route(text: str, headers: tuple[tuple[str, str], ...]) -> Route:
    url = _read_url(text)
    given = {name.lower(): _checked(name, value) for name, value in headers}
    if len(given) < len(headers):
        raise UnusableTarget("a header is given twice, in different spellings")
    secrets = [*given.values()]
    if url.raw_user is not None or url.raw_password is not None:
        if "authorization" in given:
            raise UnusableTarget("credentials stand both in the url and in a header; give one")
        credentials = f"{url.user or ''}:{url.password or ''}"
        encoded = b64encode(credentials.encode()).decode()
        given["authorization"] = f"Basic {encoded}"
        secrets += (url.password or url.user or "", url.raw_password or "", encoded)
    return Route(_as_written(url, text), given, tuple(filter(None, secrets)))


def _read_url(text: str) -> URL:
    if _AMBIGUOUS.search(text):
        raise UnusableTarget("the url holds a space, a backslash or a control character")
    try:
        url = URL(text)
    except ValueError:  # its message would repeat the URL, credentials and all
        raise UnusableTarget("the url cannot be read as one") from None
    if url.scheme not in ("http", "https"):
        raise UnusableTarget("the url must begin with http:// or https://")
    if not url.raw_host:
        raise UnusableTarget("the url names no host")
    if not url.port:
        raise UnusableTarget("port 0 of the url cannot be connected to")
    return url


def _as_written(url: URL, text: str) -> URL:
    """Without credentials and fragment, path and query byte for byte as given: a URL may be signed,
    and a reader that tidies it up breaks the signature."""
    port = "" if url.explicit_port is None else f":{url.explicit_port}"
    written = urlsplit(text)
    return URL.build(
        scheme=url.scheme,
        authority=f"{url.host_subcomponent}{port}",
        path=(written.path if written.path.isascii() else url.raw_path) or "/",
        query_string=written.query if written.query.isascii() else url.raw_query_string,
        encoded=True,
    )


def _checked(name: str, value: str) -> str:
    if not _NAME.fullmatch(name):
        raise UnusableTarget(f"{name[:40]!r} is no name a header could have")
    if not _VALUE.fullmatch(value):
        raise UnusableTarget(f"the value of header {name[:40]} is not printable ASCII on one line")
    lowered = name.lower()
    if lowered in _OURS or lowered.startswith(_OURS_BY_PREFIX):
        raise UnusableTarget(f"header {name[:40]} is set by Tenure and cannot be replaced")
    if lowered in _OF_THE_CONNECTION or lowered.startswith("proxy-"):
        raise UnusableTarget(f"header {name[:40]} belongs to the connection, not to a target")
    return value
