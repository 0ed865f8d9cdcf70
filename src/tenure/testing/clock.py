"""A clock set by the test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tenure.ports.environment import BootTime

_BILLION = 1_000_000_000
_FIRST_WALL = datetime(2030, 1, 1, tzinfo=UTC)
_UPTIME_AT_START = 100_000 * _BILLION
_UPTIME_AFTER_REBOOT = 5 * _BILLION


class ManualClock:
    """Both clocks of a machine, set by a test.

    ``advance`` moves wall and boot time. ``set_wall`` sets the wall clock only. ``reboot`` starts a
    new boot, whose time begins near zero and whose id sorts before or after the last one's.
    """

    def __init__(self, wall: datetime = _FIRST_WALL) -> None:
        self._wall = wall
        self._boots = 1
        self._uptime = _UPTIME_AT_START

    def now(self) -> datetime:
        return self._wall

    def boot_time(self) -> BootTime:
        return BootTime(f"boot-{_letter(self._boots)}{self._boots}", self._uptime)

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("time does not run backwards; set_wall can set the wall clock back")
        self._wall += timedelta(seconds=seconds)
        self._uptime += round(seconds * _BILLION)

    def set_wall(self, wall: datetime) -> None:
        self._wall = wall

    def reboot(self) -> None:
        self._boots += 1
        self._uptime = _UPTIME_AFTER_REBOOT


def _letter(boot: int) -> str:
    """n, g, z, s, l, e, …"""
    return chr(ord("a") + (boot * 19 + 20) % 26)
