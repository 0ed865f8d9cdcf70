"""Durations as text: ``300ms``, ``30s``, ``1h30m``, ``0.5s``, ``2m``."""

from __future__ import annotations

import re
from decimal import Decimal

_UNITS = {
    "d": Decimal(86400),
    "h": Decimal(3600),
    "m": Decimal(60),
    "s": Decimal(1),
    "ms": Decimal("1e-3"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),  # the micro sign
    "μs": Decimal("1e-6"),  # the Greek letter
    "ns": Decimal("1e-9"),
}
_AMOUNT = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
_UNIT = "d|h|ms|us|µs|μs|ns|m|s"
_EACH = re.compile(f"(?P<number>{_AMOUNT})(?P<unit>{_UNIT})")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)

PATTERN = rf"^\s*\+?(?:(?:{_AMOUNT})(?:{_UNIT}))+\s*$"
"""For editors: what ``parse_duration`` reads."""
_WHOLE = re.compile(PATTERN)

_MAX_TEXT_CHARACTERS = 100
LONGEST = 100 * 366 * 86400.0
"""A century, in seconds: more is a typing mistake, and no timer can hold it."""


def parse_duration(text: str) -> float:
    """Seconds. ``ValueError`` says what to write instead; negative durations are refused."""
    shown = repr(text[:40])
    if len(text) > _MAX_TEXT_CHARACTERS or not _WHOLE.match(text):
        stripped = text.strip()
        if _NUMBER.fullmatch(stripped):
            raise ValueError(f"{shown} has no unit: write {stripped}s")
        if stripped.startswith("-"):
            raise ValueError(
                f"{shown} is negative: write it without the sign, like 30s, or leave it out"
            )
        raise ValueError(f"{shown} is not a duration: write it like 30s, 1h30m or 300ms")
    parts = _EACH.finditer(text)
    seconds = float(sum(Decimal(part["number"]) * _UNITS[part["unit"]] for part in parts))
    if seconds > LONGEST:
        raise ValueError(f"{shown} is longer than a century")
    return seconds


def show_duration(seconds: float) -> str:
    """The shortest text that ``parse_duration`` reads back as exactly this."""
    rest = Decimal(repr(float(seconds)))
    if not rest.is_finite():
        raise ValueError(f"{seconds} is not a duration")
    if rest < 0:
        return f"-{show_duration(-seconds)}"
    if 0 < rest < 1:
        return f"{_plain(rest * 1000)}ms"
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    shown = f"{int(hours)}h" * (hours > 0) + f"{int(minutes)}m" * (minutes > 0)
    return shown + f"{_plain(rest)}s" * (rest > 0 or not shown)


def _plain(number: Decimal) -> str:
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
