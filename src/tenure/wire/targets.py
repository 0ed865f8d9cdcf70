"""Where callbacks go, as anybody may see it."""

from __future__ import annotations

from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import asdict, replace

from tenure.model.snapshot import CallbackTarget

MASK = "***"


class ShownTarget(Struct, frozen=True, kw_only=True):
    """A target without its credentials, wherever they are: in its headers, its URL, its query."""

    name: str
    url: str | None
    events: tuple[str, ...]
    secret_env: str | None
    headers: dict[str, str]


def shown_target(target: CallbackTarget) -> ShownTarget:
    return ShownTarget(**asdict(masked(target)))


def masked(target: CallbackTarget) -> CallbackTarget:
    url = target.url and address_of(target.url)
    return replace(target, url=url, headers=dict.fromkeys(target.headers, MASK))


def address_of(url: str) -> str:
    """Without what may be a credential; the path stays, to tell targets apart."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return MASK
    _, at, host = parts.netloc.rpartition("@")
    return parts._replace(
        netloc=f"{MASK}@{host}" if at else host, query=MASK if parts.query else "", fragment=""
    ).geturl()
