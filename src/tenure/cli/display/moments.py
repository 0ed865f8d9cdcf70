"""Times and durations as people say them."""

from __future__ import annotations

from datetime import datetime


def took(seconds: float) -> str:
    """``0.3s``, ``12.3s``, ``2m 05s``, ``1h 04m``, ``3d 02h``."""
    seconds = max(seconds, 0.0)
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02}m"
    return f"{whole // 86400}d {whole % 86400 // 3600:02}h"


def between(started: datetime | None, ended: datetime | None) -> str:
    """Empty while one of them is not known."""
    if started is None or ended is None:
        return ""
    return took((ended - started).total_seconds())


def ago(then: datetime | None, now: datetime) -> str:
    """``4s ago``, ``3m ago``, ``2d ago``."""
    if then is None:
        return ""
    seconds = max(int((now - then).total_seconds()), 0)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit} ago"
    return f"{seconds}s ago"


def local(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def clock(moment: datetime) -> str:
    return f"{moment.astimezone():%H:%M:%S}"
