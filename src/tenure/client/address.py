"""Where a gateway is."""

from __future__ import annotations

from urllib.parse import urlsplit

from tenure.model.errors import UnknownStore
from tenure.wire.addresses import shown_address


def address_of(url: str) -> str:
    """Without the slash at its end. ``UnknownStore``, which never shows a password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # whose message may repeat a part of a password
        raise _no_gateway(url) from None
    if parts.username is not None or parts.password is not None:
        raise UnknownStore(
            "a gateway's URL holds no user or password: it would end up in logs and lists of "
            "processes. Put the token into the environment variable TENURE_TOKEN"
        )
    odd = parts.scheme not in ("http", "https") or port == 0 or parts.query or parts.fragment
    if odd or not parts.hostname:
        raise _no_gateway(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _no_gateway(url: str) -> UnknownStore:
    said = f"{shown_address(url)} is no gateway's URL"
    return UnknownStore(f"{said}; an example: https://tenure.example.com")
