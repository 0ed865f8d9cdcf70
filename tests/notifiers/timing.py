"""Time that passes when a test says so."""

from __future__ import annotations

import asyncio

import pytest


def move_clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """The loop's, by which connections and names grow old."""
    loop = asyncio.get_running_loop()
    before = loop.time
    monkeypatch.setattr(loop, "time", lambda: before() + seconds)
