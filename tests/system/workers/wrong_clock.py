"""Processes whose wall clocks are wrong: their own, and those of all that they start.

libfaketime comes between them and the C library, so whoever asks for the time of day gets the wrong
one: the worker, its supervisor, its tasks. The monotonic clocks are left alone.
"""

from __future__ import annotations

from pathlib import Path

from libfaketime import get_reload_information  # type: ignore[import-untyped]

HOUR = 3600.0
AHEAD = f"+{HOUR:.0f}s"
BEHIND = f"-{HOUR:.0f}s"
TWICE_AS_FAST = "+0 x2"
AHEAD_AND_TWICE_AS_FAST = f"{AHEAD} x2"


def with_clock(off: str) -> dict[str, str]:
    """To be added to the environment; ``off`` is in the words of libfaketime."""
    _, preloaded = get_reload_information()
    assert preloaded["DONT_FAKE_MONOTONIC"] == "1"
    return {**preloaded, "FAKETIME": off, "FAKETIME_DISABLE_SHM": "1"}


def has_wrong_clock(pid: int) -> bool:
    return "libfaketime" in Path(f"/proc/{pid}/maps").read_text()
