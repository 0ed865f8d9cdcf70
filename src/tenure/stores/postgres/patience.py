"""How long a run is tried that somebody else is writing: as a rule that takes a millisecond."""

from __future__ import annotations

import asyncio
from contextlib import suppress

PAUSES = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
"""Seconds before each attempt. Whoever holds a run for longer is no writer of ours."""
SHORT_PAUSES = PAUSES[:5]
"""If others are asked for in the same call: they wait for the answer. What is still locked then is
told apart, and sent again by whoever wants it."""


def pauses_for(many: int) -> tuple[float, ...]:
    return PAUSES if many == 1 else SHORT_PAUSES


class Busy(Exception):
    """Somebody else is writing the row."""


async def pause(seconds: float) -> None:
    if seconds:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.get_running_loop().create_future()
