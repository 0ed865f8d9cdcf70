"""What a request does not take along to another origin: any header might be a key to the first one,
so only those that cannot be are. What is left behind does not come back with a later redirect."""

from __future__ import annotations

from types import SimpleNamespace

from aiohttp import ClientSession, TraceConfig, TraceRequestRedirectParams
from yarl import URL

from tenure.actions.http_asking import HARMLESS


def cautious() -> TraceConfig:
    """For a session. The library hands over the very headers that its next request will have."""
    config = TraceConfig()
    config.on_request_redirect.append(_redirected)
    return config


async def _redirected(
    session: ClientSession, context: SimpleNamespace, hop: TraceRequestRedirectParams
) -> None:
    said = hop.response.headers
    if not _stays(
        hop.url, said.get("location") or said.get("uri") or ""
    ):  # as the library reads it
        for name in set(hop.headers):
            if name.lower() not in HARMLESS:
                hop.headers.popall(name, None)


def _stays(url: URL, to: str) -> bool:
    try:
        return bool(url.join(URL(to)).origin() == url.origin())
    except ValueError:
        return False
