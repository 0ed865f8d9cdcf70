"""Where a gateway is."""

from __future__ import annotations

from urllib.parse import urlsplit

from tenure.model.errors import UnknownStore


def address_of(url: str) -> str:
    """Without the slash at its end. ``UnknownStore``, which never shows a password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UnknownStore(f"the URL of the gateway cannot be read: {error}") from error
    if parts.username is not None or parts.password is not None:
        raise UnknownStore(
            "a gateway's URL holds no user or password: it would end up in logs and lists of "
            "processes. Put the token into the environment variable TENURE_TOKEN"
        )
    odd = parts.scheme not in ("http", "https") or port == 0 or parts.query or parts.fragment
    if odd or not parts.hostname:
        place = f"{parts.scheme}://{parts.netloc}{parts.path}"
        raise UnknownStore(f"{place} is no gateway's URL; an example: https://tenure.example.com")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
