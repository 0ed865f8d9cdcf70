"""Callback targets as URL and headers, checked again: a stored one may be older than a rule."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import urlsplit

from msgspec import Struct
from yarl import URL

from tenure._version import __version__
from tenure.model.errors import TenureError
from tenure.model.snapshot import CallbackTarget
from tenure.workflow.callbacks import Fault, faults_of

_MAX_ROUTES = 1024
"""Cached."""
_ALWAYS = {
    "content-type": "application/json",
    "user-agent": f"tenure/{__version__}",
    "accept": "*/*",
    "accept-encoding": "identity",
}


class UnusableTarget(TenureError, ValueError):
    """Nothing can be sent to this target until it is changed; the message says how."""


class NotFromHere(UnusableTarget):
    """This process cannot send there; one with other settings may."""


class Route(Struct, frozen=True):
    """URL and headers of a request, with names in lower case."""

    url: URL
    headers: dict[str, str]


def route_to(target: CallbackTarget) -> Route:
    """``UnusableTarget`` if it is invalid."""
    if target.url is None:
        raise UnusableTarget("the target has no url")
    return _route(target.url, tuple(target.headers.items()), target.secret_env)


@lru_cache(_MAX_ROUTES)
def _route(url: str, headers: tuple[tuple[str, str], ...], secret_env: str | None) -> Route:
    for fault in faults_of(url, dict(headers), secret_env):
        raise UnusableTarget(_message(fault))
    return Route(_as_written(url), {**_ALWAYS, **{name.lower(): value for name, value in headers}})


def _message(fault: Fault) -> str:
    key, *name = fault.path
    what = f"header {name[0][:40]!r}" if name else f"the {key}"
    return f"{what} {fault.message}" + (f"; {fault.hint}" if fault.hint else "")


def _as_written(text: str) -> URL:
    """Without fragment, with path and query byte for byte as given, since a URL may be signed."""
    try:
        url = URL(text)
    except ValueError:  # its message would repeat the URL
        raise UnusableTarget("the url cannot be read as an address") from None
    port = "" if url.explicit_port is None else f":{url.explicit_port}"
    written = urlsplit(text)
    return URL.build(
        scheme=url.scheme,
        authority=f"{url.host_subcomponent}{port}",
        path=(written.path if written.path.isascii() else url.raw_path) or "/",
        query_string=written.query if written.query.isascii() else url.raw_query_string,
        encoded=True,
    )
