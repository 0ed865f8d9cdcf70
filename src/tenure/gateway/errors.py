"""Why a gateway does not even begin. Without its libraries: commands name these before they load
any."""

from __future__ import annotations

from tenure.model.errors import TenureError


class NotSafe(TenureError):
    """It would serve whoever can reach it."""


class CannotListen(TenureError):
    """The address is taken, not ours, or not permitted."""
