"""Beginning a run in the very write that claims it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tenure.model.beginning import Beginning, WaitingRun
from tenure.model.update import Receipt


@runtime_checkable
class Beginnings(Protocol):
    """Without it a run is claimed, and begins with its owner's next update: one commit later.

    For a run that waits alone. Who asks for many at once claims them: of several workers that see
    the same runs wait only one would begin each.
    """

    async def find_waiting(self, queues: Sequence[str], *, limit: int) -> list[WaitingRun]:
        """The first runs that a claim of these queues would get now and that nobody owns, begun or
        not, in the order of claims. They are not claimed, and nothing is locked."""
        ...

    async def begin_run(self, beginning: Beginning) -> Receipt:
        """Claim and first update in one commit and one version, as ``model.beginning`` decides.

        ``RunNotFound``; ``LeaseHeld``, ``VersionConflict`` or ``NotRunnable`` if the run is not as
        it was seen: then nothing was written. The same ``update_id`` again gets the first answer,
        or ``LeaseLost`` if the run is somebody else's by now.
        """
        ...


@runtime_checkable
class Offering(Protocol):
    """Of a store whose hints bring along the run that they tell of (``Wakeups``)."""

    def offered_run(self, queues: Sequence[str]) -> WaitingRun | None:
        """The run that waits alone in these queues, as far as hints tell: it was announced with its
        record after somebody had looked and found nothing. Offered once; nobody is asked."""
        ...
