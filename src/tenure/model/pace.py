"""Whether a store that answers late was away, or is always as slow as that.

Of one that was away nobody could renew a lease: then expired ones are left to their owners once.
One that is slow all the time still renews what it is asked to renew, and shall not keep the runs of
the dead for ever.
"""

from __future__ import annotations

from tenure.model.leasing import Request, in_time, late_after

_OFTEN = 3


class Pace:
    """Of one store, as one process sees it. A store is

    - *quick* at first, and again with every answer that is not late;
    - *away* with an answer that is later than it usually is, and with all late ones after that,
      until it is known to be slow: they may have been held up by the same thing;
    - *slow* after a stretch of late answers: several in a row, for as long as a lease, and none
      that was later than usual. Then what takes as long as usual counts as if it were in time.

    What is usual is the longest answer of the last whole stretch and of the one under way. So an
    outage is forgotten some time after, and what comes again and again is no outage.
    """

    def __init__(self) -> None:
        self._usual = 0.0
        """The longest answer of the last whole stretch. None was: it is not slow."""
        self._longest = 0.0
        """Of the stretch under way."""
        self._times = 0
        """Late in this stretch, each asked when the one counted before had been answered: those
        that waited at the same time waited for the same thing."""
        self._since = self._counted_at = 0.0

    def in_time(self, request: Request, asked_at: float, now: float) -> Request:
        """``request`` as it counts ``now``: it takes no expired lease if its store was away."""
        late, lease = late_after(request.seconds), request.seconds
        away = self.was_away(asked_at, now, late=late, lease=lease)
        return in_time(request, now - asked_at) if away else request

    def was_away(self, asked_at: float, now: float, *, late: float, lease: float) -> bool:
        """``late`` is what takes longer than that; a ``lease`` is how long it must have been so."""
        waited = now - asked_at
        if waited <= late:
            self._usual = self._longest = 0.0
            return False
        if waited - max(self._usual, self._longest) > late:
            self._usual = 0.0
            self._begin(waited, now)
            return True
        self._longest = max(self._longest, waited)
        if asked_at >= self._counted_at:
            self._times, self._counted_at = self._times + 1, now
        if self._times > _OFTEN and now - self._since >= lease:
            self._usual = self._longest
            self._begin(waited, now)
        return not self._usual

    def _begin(self, waited: float, now: float) -> None:
        """A stretch, with this answer."""
        self._longest, self._times = waited, 1
        self._since = self._counted_at = now
