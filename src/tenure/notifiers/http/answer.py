"""What a receiver's answer means for the delivery."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from msgspec import Struct

from tenure.notifiers.http.wording import place
from tenure.ports.callbacks import NotTaken

LONGEST_WAIT = 86_400.0
"""What we wait because a receiver says so. The relay's own limit may be lower."""
_WORTH_ANOTHER_TRY = frozenset({408, 425, 429, *range(500, 600)})
_SECONDS = re.compile(r"[0-9]+")


class Answer(Struct, frozen=True, kw_only=True):
    status: int
    retry_after: str | None = None
    location: str = ""
    excerpt: str = ""
    """The beginning of its body, fit to be quoted."""


def taken(status: int) -> bool:
    return 200 <= status < 300


def verdict(answer: Answer, now: datetime) -> NotTaken | None:
    """``None``: it has been taken."""
    status = answer.status
    if taken(status):
        return None
    if status in _WORTH_ANOTHER_TRY:
        wait = wait_asked_for(answer.retry_after, now)
        return NotTaken(error=_words(answer), again=True, not_before=wait)
    return NotTaken(error=_words(answer), again=False)


def wait_asked_for(retry_after: str | None, now: datetime) -> float:
    """Seconds, from a ``Retry-After`` in either of its forms; 0 if it says nothing sensible."""
    text = (retry_after or "").strip()
    if _SECONDS.fullmatch(text):
        return min(float(text), LONGEST_WAIT)
    try:
        until = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    if until.tzinfo is None:  # "-0000": UTC from nowhere in particular
        until = until.replace(tzinfo=UTC)
    return min(max((until - now).total_seconds(), 0.0), LONGEST_WAIT)


def _words(answer: Answer) -> str:
    said = f"answered {answer.status}"
    if 300 <= answer.status < 400 and answer.location:
        return (
            f"{said}, a redirect to {place(answer.location)}, which is not followed; set the "
            "target's url to where it should go"
        )
    return f"{said}: {answer.excerpt}" if answer.excerpt else said
