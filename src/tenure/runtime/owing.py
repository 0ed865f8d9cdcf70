"""Which of our runs still owe callbacks, as far as one can tell from here."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from tenure.model.outbox import Delivery
from tenure.model.status import DeliveryState

_MOST = 1000


class Owing:
    """Knows what this process put into the outbox and its relay has not got rid of. What another
    relay gets rid of stays here: it is for the store to say in the end.

    Bounded: the run that was not written to for longest is forgotten first.
    """

    def __init__(self) -> None:
        self._left: OrderedDict[str, set[str]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._left)

    @property
    def run_ids(self) -> tuple[str, ...]:
        return tuple(self._left)

    def add(self, run_id: str, delivery_ids: Iterable[str]) -> None:
        self._left.setdefault(run_id, set()).update(delivery_ids)
        self._left.move_to_end(run_id)
        if len(self._left) > _MOST:
            self._left.popitem(last=False)

    def settled(self, delivery: Delivery) -> None:
        """One that waits again is still owed. Others of the same run may be another process's."""
        left = self._left.get(delivery.run_id)
        if left is None or delivery.state is DeliveryState.WAITING:
            return
        left.discard(delivery.id)
        if not left:
            del self._left[delivery.run_id]
