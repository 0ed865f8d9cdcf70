"""How far the settings of callbacks may go. Beyond, one slip would stop them all without a word."""

from __future__ import annotations

_DAY = 86_400.0

MOST_ATTEMPTS = 1000
LARGEST_BACKOFF = 1000.0
LONGEST_DELAY = 30 * _DAY
"""Seconds between two attempts."""
LONGEST_ATTEMPT = 3600.0
"""Seconds. So long a callback is held by a process that died while it sent it."""
LONGEST_FLUSH = _DAY
"""Seconds that closing may take."""
