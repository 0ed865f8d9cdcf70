"""How long viewers are waited for."""

from __future__ import annotations

from msgspec import Struct


class Patience(Struct, frozen=True, kw_only=True):
    """Seconds."""

    heartbeat: float = 15.0
    """Without news, until a sign of life: proxies cut lines on which nothing comes."""
    stalled: float = 20.0
    """For a viewer to take what was sent to it, before it is hung up on."""
    farewell: float = 5.0
    """Then, to take what is on its way."""
