"""The outcome of a delivery from the receiver's answer.

An answer may contain control characters, HTML, or the credentials of the request. So excerpts are
cut, made printable, and masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from msgspec import Struct
from yarl import URL

from tenure.ports.callbacks import NotTaken

MAX_WAIT_S = 86_400.0
"""For a ``Retry-After``; the relay's limit may be lower."""
MAX_EXCERPT_BYTES = 4096
_MAX_QUOTED = 160
_RETRIED = frozenset({408, 425, 429, *range(500, 600)})
_SECONDS = re.compile(r"[0-9]+")
_MASK = "***"
_MIN_SECRET = 4
_MIN_WORD_OF_SECRET = 8


class Answer(Struct, frozen=True, kw_only=True):
    status: int
    reason: str = ""
    retry_after: str = ""
    location: str = ""
    body: bytes = b""
    """Its beginning."""


def verdict(answer: Answer, now: datetime, secrets: Iterable[str] = ()) -> NotTaken | None:
    """``None`` for success. ``secrets`` are masked in messages."""
    if 200 <= answer.status < 300:
        return None
    said = _words(answer, secrets)
    if answer.status in _RETRIED:
        wait = retry_after(answer.retry_after, now)
        return NotTaken(error=said, again=True, not_before=wait)
    return NotTaken(error=said, again=False)


def retry_after(text: str, now: datetime) -> float:
    """Seconds from a ``Retry-After`` in either form; 0 if it is invalid."""
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return min(float(text), MAX_WAIT_S)
    try:
        until = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    if until.tzinfo is None:  # "-0000" is UTC
        until = until.replace(tzinfo=UTC)
    return min(max((until - now).total_seconds(), 0.0), MAX_WAIT_S)


def _words(answer: Answer, secrets: Iterable[str]) -> str:
    said = f"answered {answer.status}"
    if 300 <= answer.status < 400 and answer.location:
        return (
            f"{said}, a redirect to {_place(masked(answer.location, secrets))}, which is not "
            "followed; set the target's url to where it should go"
        )
    shown = excerpt(answer.body, secrets)
    return f"{said}: {shown}" if shown else said


def _place(location: str) -> str:
    """The location without user, query and fragment."""
    try:
        url = URL(location)
        return quoted(str(url.with_query(None).with_fragment(None).with_user(None)))
    except ValueError:  # relative, or no URL at all
        return quoted(location.partition("?")[0].rpartition("@")[2])


def excerpt(body: bytes, secrets: Iterable[str] = ()) -> str:
    """The beginning of an answer, masked and printable."""
    return quoted(masked(body[:MAX_EXCERPT_BYTES].decode(errors="replace"), secrets))


def masked(text: str, secrets: Iterable[str]) -> str:
    """Without the secrets and their longer words: ``Bearer`` is kept, its token masked."""
    words = {secret for secret in secrets if len(secret) >= _MIN_SECRET}
    words |= {
        word for secret in words for word in secret.split() if len(word) >= _MIN_WORD_OF_SECRET
    }
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, _MASK)
    return text


def quoted(text: str) -> str:
    """One short printable line."""
    line = " ".join(text.split())
    if not line.isascii() or not line.isprintable():
        printable = (character if character.isprintable() else "\ufffd" for character in line)
        line = re.sub("\ufffd+", "\ufffd", "".join(printable))
    return line if len(line) <= _MAX_QUOTED else f"{line[:_MAX_QUOTED]}…"
