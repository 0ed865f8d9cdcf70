"""Whether a store that answers late was away, or is always as slow as that.

Of one that was away nobody could renew a lease: then expired ones are left to their owners once.
One that is slow all the time still renews what it is asked to renew, and shall not keep the runs of
the dead for ever.
"""

from __future__ import annotations

from tenure.model.leasing import Request, in_time, late_after

_OFTEN = 3


class Pace:
    """Of one store, as one process sees it."""

    def __init__(self) -> None:
        self._times = 0
        """Late in a row, each asked when the one before had been answered."""
        self._since = self._last = 0.0

    def in_time(self, request: Request, asked_at: float, now: float) -> Request:
        """``request`` as it counts ``now``: it takes no expired lease if its store was away."""
        late, lease = late_after(request.seconds), request.seconds
        away = self.was_away(asked_at, now, late=late, lease=lease)
        return in_time(request, now - asked_at) if away else request

    def was_away(self, asked_at: float, now: float, *, late: float, lease: float) -> bool:
        """``late`` is what takes longer than that. That a store is slow is known when it has been
        so for as long as a ``lease``, several times in a row."""
        if now - asked_at <= late:
            self._times = 0
            return False
        if not self._times:
            self._times, self._since = 1, now
        elif asked_at >= self._last:
            self._times += 1
        self._last = now
        return self._times <= _OFTEN or now - self._since < lease
