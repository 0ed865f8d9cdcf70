"""How messages name things.

Text from the file may be repeated to its author. The value of a variable may not: it could be a
secret, and messages are stored in the record.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

_MAX_COMPARED = 300
_MAX_SHOWN_CHARACTERS = 100


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint naming the nearest of ``known``."""
    wanted = name[:_MAX_SHOWN_CHARACTERS].lower()
    folded = {other.lower(): other for other in known if len(other) <= _MAX_SHOWN_CHARACTERS}
    if len(folded) > _MAX_COMPARED:
        # Comparing is slow and a file may hold thousands of names: compare those that begin alike.
        alike = [other for other in folded if other[:1] == wanted[:1]]
        folded = {other: folded[other] for other in alike[:_MAX_COMPARED]}
    close = get_close_matches(wanted, folded, n=1, cutoff=0.6) or [
        other for other in folded if sorted(other) == sorted(wanted)
    ]
    return f"did you mean {folded[close[0]]!r}?" if close else None


def instead_of(name: str, known: Iterable[str], most: int = 10) -> str:
    """A hint that always helps: the nearest of ``known``, or the choices."""
    there = list(known)
    return did_you_mean(name, there) or f"there is {listed(there, most)}"


def listed(names: Iterable[str], most: int = 10) -> str:
    """``a, b, c`` for a message, shortened."""
    shown = list(names)
    rest = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {rest} more" if rest > 0 else "")


def shown(value: Any) -> str:
    """A value from the file, shortened."""
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else f"{value[:37]}…")
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)[:40] if isinstance(value, int | float) else called(value)


def quoted(text: str, most: int = 60) -> str:
    """A text that may hold a secret: complete, so that the secret can be masked, or not at all."""
    return repr(text) if len(text) <= most else f"a text of {len(text)} characters"


def called(value: Any) -> str:
    """The type of a variable's value, without the value."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list | tuple):
        return "a list"
    return "null" if value is None else f"a {type(value).__name__.lower()}"
