"""Which of our runs still owe callbacks, as far as one can tell from here."""

from __future__ import annotations

from collections import OrderedDict

from tenure.model.outbox import Delivery
from tenure.model.status import DeliveryState

_MOST = 1000


class Owing:
    """Counts what this process put into the outbox and what its relay got rid of. What another
    relay gets rid of stays counted: it is for the store to say in the end.

    Bounded: the run that was not written to for longest is forgotten first.
    """

    def __init__(self) -> None:
        self._left: OrderedDict[str, int] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._left)

    @property
    def run_ids(self) -> tuple[str, ...]:
        return tuple(self._left)

    def add(self, run_id: str, count: int) -> None:
        self._left[run_id] = self._left.pop(run_id, 0) + count
        if len(self._left) > _MOST:
            self._left.popitem(last=False)

    def settled(self, delivery: Delivery) -> None:
        """One that waits again is still owed; one that somebody sent again was settled before."""
        left = self._left.get(delivery.run_id)
        if left is None or delivery.state is DeliveryState.WAITING or delivery.redelivery:
            return
        if left > 1:
            self._left[delivery.run_id] = left - 1
        else:
            del self._left[delivery.run_id]
