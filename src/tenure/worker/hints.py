"""Claiming the runs that a broker names.

*Claim in the store, then acknowledge, then work.* From the claim on the lease carries the
ownership: a hint that comes again, since its worker was slow to acknowledge it or died, is answered
by the store with ``LeaseHeld``, and runs nothing twice.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from datetime import datetime

from tenure.aio import pause
from tenure.model.errors import (
    InvalidRunId,
    LeaseHeld,
    NotRunnable,
    RunNotFound,
    StoreUnavailable,
    TenureError,
)
from tenure.model.retry import RetryPolicy
from tenure.ports.environment import Broker, Hint
from tenure.runtime.run import RunClaim
from tenure.worker.claims import Capacity, Claims
from tenure.worker.runs import Pace, RunningRuns

_log = logging.getLogger("tenure.worker")

_WAIT = 5.0
_AGAIN = RetryPolicy(attempts=2**62, delay=0.1, backoff=2.0, max_delay=5.0, jitter=0.5)


def delay_of(held: LeaseHeld, now: datetime, shortest: float, longest: float) -> float:
    """Until the lease of another can have ended. It is the store's clock that says when, and ours
    may be wrong: then it is asked too often or too late, within bounds."""
    left = longest if held.expires_at is None else (held.expires_at - now).total_seconds()
    return min(max(left, shortest), longest)


class HintListener:
    def __init__(
        self,
        broker: Broker,
        queues: Sequence[str],
        claims: Claims,
        shift: RunningRuns,
        room: Capacity,
        pace: Pace,
        lease_seconds: float,
        now: Callable[[], datetime],
    ) -> None:
        self._broker = broker
        self._queues = queues
        self._claims = claims
        self._shift = shift
        self._room = room
        self._pace = pace
        self._lease_seconds = lease_seconds
        self._now = now
        self.hears = False
        """The broker answers."""
        self._complained = False

    async def run(self) -> None:
        """Until it is cancelled. Without the broker nothing is heard, and nothing else happens."""
        failures = 0
        while True:
            room = await self._room.for_hints()
            limit = min(room, self._pace.claim_batch)
            try:
                hints = await self._broker.take(self._queues, limit=limit, wait=_WAIT)
                failures = 0
                self._note(None)
                if hints:
                    await self._follow(hints)
            except Exception as error:  # noqa: BLE001  whatever it is, it must be tried again
                self._note(error)
                failures += 1
                await pause(_AGAIN.wait_after(failures, luck=random.random()) or 0.0)  # noqa: S311

    async def _follow(self, hints: Sequence[Hint]) -> None:
        claimed: dict[Hint, RunClaim] = {}
        dropped: list[Hint] = []
        delays: dict[Hint, float] = {}
        async with self._room.claiming() as room:
            for hint in hints:
                if len(claimed) >= room or self._room.closed:  # others may have some
                    delays[hint] = 0.0
                    continue
                try:
                    claim = await self._claim(hint)
                except LeaseHeld as held:
                    shortest, longest = self._pace.poll_interval, self._lease_seconds
                    delays[hint] = delay_of(held, self._now(), shortest, longest)
                except StoreUnavailable:
                    continue  # the hint comes again
                else:
                    if claim is None:
                        dropped.append(hint)
                    else:
                        claimed[hint] = claim
            if self._room.closed:
                await self._claims.give_back([*claimed.values()])
                delays |= dict.fromkeys(claimed, 0.0)
                claimed.clear()
            try:
                await self._answer([*claimed, *dropped], delays)
            finally:
                for claim in claimed.values():
                    self._shift.begin(claim)

    async def _claim(self, hint: Hint) -> RunClaim | None:
        """``None``: nothing needs to be done on account of this hint. A run that has ended, that is
        not in this store, that waits for its time or for approval: what becomes of it is in the
        store, where it is found when the time comes, and approving it hints again. A broker that
        kept it until then would be a second place where runs wait."""
        if hint.run_id in self._shift or self._shift.gave_up(hint.run_id):
            return None
        try:
            return await self._claims.this_one(hint.run_id)
        except (RunNotFound, NotRunnable, InvalidRunId):
            return None

    async def _answer(self, settled: Sequence[Hint], delays: dict[Hint, float]) -> None:
        try:
            if settled:
                await self._broker.acknowledge(settled)
            for hint, delay in delays.items():
                await self._broker.give_back(hint, delay)
        except TenureError as error:
            self._note(error)  # they come again; who holds a run is known by then

    def _note(self, error: Exception | None) -> None:
        self.hears = error is None
        if error is not None and not self._complained:
            said = str(error) or type(error).__name__
            _log.warning("runs are found by looking, an interval later: %s", said)
        elif error is None and self._complained:
            _log.warning("the broker answers again")
        self._complained = error is not None
