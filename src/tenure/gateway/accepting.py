"""What a request would rather be answered with (RFC 9110, 12.5.1)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tenure.gateway.answering import JSON

_QUALITY = re.compile(r"q=([01](?:\.\d{0,3})?)", re.ASCII)


def prefers(accept: str, media_type: str) -> bool:
    """To JSON, which is what it gets otherwise: it names ``media_type``, does not refuse it
    (``q=0``), and likes it no less."""
    ranges = _ranges(accept)
    wanted = ranges.get(media_type, 0.0)
    return wanted > 0 and wanted >= _liking(JSON, ranges)


def _liking(media_type: str, ranges: Mapping[str, float]) -> float:
    """By the range that says most about it."""
    kind, _, _ = media_type.partition("/")
    said = (ranges[each] for each in (media_type, f"{kind}/*", "*/*") if each in ranges)
    return next(said, 0.0)


def _ranges(accept: str) -> dict[str, float]:
    """Each with its quality; one that cannot be read counts as not given."""
    found: dict[str, float] = {}
    for each in accept.lower().split(","):
        name, *parameters = (part.strip() for part in each.split(";"))
        qualities = (_QUALITY.fullmatch(parameter) for parameter in parameters)
        found[name] = next((float(given[1]) for given in qualities if given), 1.0)
    return found
