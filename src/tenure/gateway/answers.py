"""Sending an answer: security headers, compression, and what ``Accept`` prefers."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Mapping

from starlette.types import Send

JSON = "application/json"
_MIN_COMPRESSED_BYTES = 1024
_MIN_THREAD_BYTES = 64 << 10
_GZIP_LEVEL = 4
_COMPRESSIBLE = ("application/json", "application/problem+json", "text/")

STEADY = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_DEFAULT_POLICY = "default-src 'none'; frame-ancestors 'none'"


async def send_answer(
    send: Send,
    status: int,
    body: bytes,
    media_type: str,
    headers: Mapping[str, str],
    *,
    accept_encoding: str = "",
    head: bool = False,
    packed: bytes | None = None,
) -> None:
    said = {
        "cache-control": "no-store",
        "content-security-policy": _DEFAULT_POLICY,
        **headers,
    }
    if len(body) >= _MIN_COMPRESSED_BYTES and media_type.startswith(_COMPRESSIBLE):
        said["vary"] = "accept-encoding"
        if takes_gzip(accept_encoding):
            body = packed or await compressed(body)
            said["content-encoding"] = "gzip"
    if status not in (204, 304):
        said["content-type"] = media_type
        said["content-length"] = str(len(body))
    raw = [(name.encode(), value.encode("latin-1")) for name, value in said.items()]
    await send({"type": "http.response.start", "status": status, "headers": [*raw, *STEADY]})
    await send({"type": "http.response.body", "body": b"" if head else body})


def takes_gzip(accept_encoding: str) -> bool:
    for part in accept_encoding.lower().split(","):
        name, _, quality = part.strip().partition(";")
        if name.strip() in ("gzip", "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


async def compressed(body: bytes) -> bytes:
    if len(body) < _MIN_THREAD_BYTES:
        return gzip.compress(body, _GZIP_LEVEL, mtime=0)
    return await asyncio.to_thread(gzip.compress, body, _GZIP_LEVEL, mtime=0)


_QUALITY_PARAMETER = re.compile(r"q=([01](?:\.\d{0,3})?)", re.ASCII)


def prefers(accept: str, media_type: str) -> bool:
    """Whether ``media_type`` is preferred to JSON, the default: it is named, not refused (``q=0``),
    and not rated lower (RFC 9110, 12.5.1)."""
    ranges = _ranges(accept)
    wanted = ranges.get(media_type, 0.0)
    return wanted > 0 and wanted >= _quality_of(JSON, ranges)


def _quality_of(media_type: str, ranges: Mapping[str, float]) -> float:
    """The quality of the most specific range that matches."""
    kind, _, _ = media_type.partition("/")
    said = (ranges[each] for each in (media_type, f"{kind}/*", "*/*") if each in ranges)
    return next(said, 0.0)


def _ranges(accept: str) -> dict[str, float]:
    """Ranges with their quality; unreadable ones are ignored."""
    found: dict[str, float] = {}
    for each in accept.lower().split(","):
        name, *parameters = (part.strip() for part in each.split(";"))
        qualities = (_QUALITY_PARAMETER.fullmatch(parameter) for parameter in parameters)
        found[name] = next((float(given[1]) for given in qualities if given), 1.0)
    return found
