"""How old a run may be asked to be."""

from __future__ import annotations

MAX_AGE_SECONDS = 100 * 366 * 86400.0
"""A century: further back than anything a store has kept."""


def check_age(seconds: float) -> None:
    """Below zero it would reach runs that are yet to end."""
    if not 0 <= seconds <= MAX_AGE_SECONDS:
        raise ValueError(f"a run ended from 0 seconds to a century ago, not {seconds}")
