"""Whether a request wants to be told as it happens, and from where on."""

from __future__ import annotations

import re
from typing import Any

from tenure.gateway.accepting import prefers
from tenure.gateway.calls import Call
from tenure.gateway.live.frames import MEDIA_TYPE
from tenure.gateway.problems import MALFORMED, Refusal


def wants_stream(call: Call[Any, Any]) -> bool:
    return prefers(call.headers.get("accept", ""), MEDIA_TYPE)


def place_after(call: Call[Any, Any], pattern: str, asked: str) -> str:
    """Who comes back says how far it was: that counts more than what it once ``asked`` for."""
    last = call.headers.get("last-event-id", "")
    if not last:
        return asked
    if re.fullmatch(pattern, last, re.ASCII) is None:
        raise Refusal(MALFORMED, f"Last-Event-ID: {last[:80]!r} is none of this stream's ids")
    return last


def comes_back(call: Call[Any, Any]) -> bool:
    return bool(call.headers.get("last-event-id"))
