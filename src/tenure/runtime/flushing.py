"""Has every callback of a run had its chance?"""

from __future__ import annotations

from collections.abc import Iterable

from tenure.model.outbox import Delivery
from tenure.model.status import DeliveryState
from tenure.ports.outbox import Outbox

_PAGE = 500


async def all_tried(outbox: Outbox, run_id: str) -> bool:
    """Whether each was tried, or stands behind one that was and must be tried again."""
    waiting: list[Delivery] = []
    cursor = None
    while True:
        page = await outbox.list_deliveries(
            state=DeliveryState.WAITING, run_id=run_id, limit=_PAGE, cursor=cursor
        )
        waiting += page.items
        cursor = page.cursor
        if cursor is None:
            return not any(head.attempts == 0 for head in _heads(waiting))


def _heads(waiting: Iterable[Delivery]) -> Iterable[Delivery]:
    """Of each target the one that goes out next."""
    heads: dict[str, Delivery] = {}
    for delivery in waiting:
        head = heads.setdefault(delivery.target.name, delivery)
        if delivery.event.position < head.event.position:
            heads[delivery.target.name] = delivery
    return heads.values()
