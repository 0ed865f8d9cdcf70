"""Claiming the runs that a broker's hints name.

A run is claimed in the store first, then the hint acknowledged, then the run executed. The lease
alone is the ownership: a hint that is delivered again (its worker was slow to acknowledge it, or
died) meets ``LeaseHeld`` in the store, and nothing runs twice.
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
from tenure.model.retry_policy import RetryPolicy
from tenure.ports.environment import Broker, Hint
from tenure.runtime.run import RunClaim
from tenure.worker.claims import Capacity, Claims
from tenure.worker.runs import Pace, RunningRuns

_log = logging.getLogger("tenure.worker")

_TAKE_TIMEOUT_S = 5.0
_RETRIES = RetryPolicy(attempts=2**62, delay=0.1, backoff=2.0, max_delay=5.0, jitter=0.5)


def delay_of(held: LeaseHeld, now: datetime, shortest: float, longest: float) -> float:
    """Seconds until another owner's lease may have expired. The expiry is by the store's clock, so
    a wrong local clock is limited by ``shortest`` and ``longest``."""
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
        """Whether the broker answers."""
        self._warned = False

    async def run(self) -> None:
        """Until cancelled. While the broker is away runs are found by polling only."""
        failures = 0
        while True:
            room = await self._room.for_hints()
            limit = min(room, self._pace.claim_batch)
            try:
                hints = await self._broker.take(self._queues, limit=limit, wait=_TAKE_TIMEOUT_S)
                failures = 0
                self._note(None)
                if hints:
                    await self._follow(hints)
            except Exception as error:  # noqa: BLE001  whatever it is, it must be tried again
                self._note(error)
                failures += 1
                await pause(_RETRIES.wait_after(failures, luck=random.random()) or 0.0)  # noqa: S311

    async def _follow(self, hints: Sequence[Hint]) -> None:
        claimed: dict[Hint, RunClaim] = {}
        dropped: list[Hint] = []
        delays: dict[Hint, float] = {}
        async with self._room.claiming() as room:
            for hint in hints:
                if len(claimed) >= room or self._room.closed:  # for other workers
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
        """``None``: drop the hint. The run has ended, is not in this store, or waits for its time
        or for approval: it is found in the store in time, and an approval hints again. Otherwise
        the broker would be a second queue."""
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
            self._note(error)  # they are delivered again, and meet ``LeaseHeld``

    def _note(self, error: Exception | None) -> None:
        self.hears = error is None
        if error is not None and not self._warned:
            said = str(error) or type(error).__name__
            _log.warning("runs are found by looking, an interval later: %s", said)
        elif error is None and self._warned:
            _log.warning("the broker answers again")
        self._warned = error is not None
