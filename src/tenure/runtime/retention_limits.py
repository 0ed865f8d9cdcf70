"""How far the settings of retention may go."""

from __future__ import annotations

MOST_PER_SECOND = 100_000
