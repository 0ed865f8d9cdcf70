"""Failures in a few words on one line, for the record, lists and logs.

What a receiver sends may hold anything: characters that steer a terminal, a page of HTML, and the
very credentials it got from us. So the words are ours, and what is quoted is cut, made printable,
and stripped of every secret the request knew.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterable

from yarl import URL

from tenure.notifiers.http.failures import (
    NoConnection,
    NoEndOfIt,
    NoLongerSending,
    NotHttp,
    NotResolved,
    Unanswered,
)

LOOKED_AT = 4096
"""Bytes of an answer that are looked at for words to quote."""
_QUOTED = 160
_MASK = "***"
_SHORTEST_SECRET = 4
_SHORTEST_WORD = 8


def excerpt(body: bytes, secrets: Iterable[str] = ()) -> str:
    """The beginning of an answer, fit to be quoted."""
    return quoted(masked(body[:LOOKED_AT].decode(errors="replace"), secrets))


def masked(text: str, secrets: Iterable[str]) -> str:
    """Without the secrets, and without the words they consist of: ``Bearer`` stays, its token
    goes."""
    words = {secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}
    words |= {word for secret in words for word in secret.split() if len(word) >= _SHORTEST_WORD}
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, _MASK)
    return text


def quoted(text: str) -> str:
    line = " ".join(text.split())
    if not line.isascii() or not line.isprintable():
        line = re.sub("\ufffd+", "\ufffd", "".join(map(_printable, line)))
    return line if len(line) <= _QUOTED else f"{line[:_QUOTED]}…"


def _printable(character: str) -> str:
    return character if character.isprintable() else "\ufffd"


def place(location: str) -> str:
    """Where a redirect leads, without what may be private about it."""
    try:
        url = URL(location)
        return quoted(str(url.with_query(None).with_fragment(None).with_user(None)))
    except ValueError:  # relative, or no URL at all
        return quoted(location.partition("?")[0].rpartition("@")[2])


def trouble(error: OSError, *, connect_timeout: float, total_timeout: float) -> str:
    """Why there was no answer."""
    match error:
        case NotResolved():
            return f"its name cannot be resolved: {quoted(str(error))}"
        case ssl.SSLCertVerificationError():
            why = getattr(error, "verify_message", "")
            return f"its TLS certificate is not accepted: {quoted(str(why))}"
        case ssl.SSLError():
            why = getattr(error, "reason", None) or "the handshake failed"
            return f"no TLS connection: {quoted(str(why))}"
        case NoConnection():
            return f"no connection within {connect_timeout:g} s"
        case TimeoutError() if not error.errno:
            return f"no answer within {total_timeout:g} s"
        case NoEndOfIt() | NoLongerSending():
            return str(error)
        case Unanswered():
            return "it closed the connection without an answer"
        case NotHttp():
            return f"its answer is not HTTP: {quoted(str(error))}"
        case OSError() if error.errno:
            return f"connection failed: {os.strerror(error.errno)}"
    return "connection lost"
