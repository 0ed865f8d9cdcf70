"""The runs that a process holds, as its two threads share them.

A holding is *held* until it is *over*: dropped by whoever drives the run, or lost, of which its
driver is told once. Who may do what:

- the event loop that drives the runs adds and drops holdings, ends the trust in them when its time
  has come, and calls their drivers: a driver hears nothing from another thread;
- the keeper, in a thread of its own or in that loop, prolongs trust, and only in what is not over.
  What is past its trust is not renewed any more: its tasks were told to end.

A transport that ends tasks without us (``TrustWindows``) is told of each such moment under the same
lock, so that its last word is ours, and none comes after the run was dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import inf

from tenure.model.leasing import Lease
from tenure.ports.trust import TrustWindows
from tenure.runtime.lease_timing import Timing
from tenure.runtime.stop import NOT_RENEWED


class Holding:
    """One run. Without a lease there is nothing to renew, or to lose in time."""

    __slots__ = (
        "cancel_heard",
        "canceled",
        "lease",
        "lost",
        "over",
        "renewed_at",
        "run_id",
        "trusted_until",
    )

    def __init__(
        self,
        run_id: str,
        lease: Lease | None,
        renewed_at: float,
        canceled: Callable[[], None],
        lost: Callable[[str], None],
    ) -> None:
        """``renewed_at``: the loop's time when the claim was sent, not when it was answered."""
        self.run_id = run_id
        self.lease = lease
        self.renewed_at = renewed_at
        self.trusted_until = inf
        self.canceled = canceled
        self.lost = lost
        self.over = False
        self.cancel_heard = False


class Holdings:
    def __init__(self, timing: Timing, windows: TrustWindows | None = None) -> None:
        self._trusted_for = timing.trust
        self._margin = timing.lease_duration - timing.trust
        self._windows = windows
        self._lock = threading.Lock()
        self._held: dict[str, Holding] = {}
        self._resting = True

    def __len__(self) -> int:
        return len(self._held)

    # By the loop that drives the runs

    def add(self, holding: Holding) -> bool:
        """Whether nobody keeps what is held here: the keeper had nothing to do so far."""
        with self._lock:
            rested, self._resting = self._resting, False
            self._held[holding.run_id] = holding
            self._trust(holding)
            return rested

    def drop(self, holding: Holding) -> bool:
        """Whether nothing is held any more."""
        with self._lock:
            holding.over = True
            if self._held.get(holding.run_id) is holding:
                del self._held[holding.run_id]
                if self._windows is not None:
                    self._windows.forget(holding.run_id)
            return not self._held

    def lose(self, holding: Holding, why: str) -> None:
        with self._lock:
            over, holding.over = holding.over, True
        if not over:
            holding.lost(why)

    def cancel(self, holding: Holding) -> None:
        if not holding.over and not holding.cancel_heard:
            holding.cancel_heard = True
            holding.canceled()

    def end_trust(self, now: float) -> float:
        """Whatever was not renewed in time is lost. When to be back."""
        for holding in self._all():
            if now >= holding.trusted_until:
                self.lose(holding, NOT_RENEWED)
        return min((each.trusted_until for each in self._all() if not each.over), default=inf)

    # By the keeper

    def rest(self) -> bool:
        """Whether nothing is held; whoever adds to it has to wake the keeper again."""
        with self._lock:
            self._resting = not self._held
            return self._resting

    def find(self, run_id: str) -> Holding | None:
        return self._held.get(run_id)

    def renewable(self, now: float) -> list[tuple[Holding, Lease]]:
        return [
            (each, each.lease)
            for each in self._all()
            if each.lease is not None and not each.over and now < each.trusted_until
        ]

    def prolong(self, holding: Holding, sent_at: float) -> None:
        """A renewal that was sent then has succeeded."""
        with self._lock:
            if not holding.over:
                holding.renewed_at = sent_at
                self._trust(holding)

    def _all(self) -> list[Holding]:
        with self._lock:
            return list(self._held.values())

    def _trust(self, holding: Holding) -> None:
        if holding.lease is not None:
            holding.trusted_until = holding.renewed_at + self._trusted_for
        if self._windows is not None:
            self._windows.trust(holding.run_id, holding.trusted_until, self._margin)
