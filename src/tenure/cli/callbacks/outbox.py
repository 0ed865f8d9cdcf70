"""Stores that keep callbacks, and a clear word for those that do not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

from tenure.cli.display.paint import note
from tenure.cli.display.text import counted
from tenure.cli.opening import meant_run, reading
from tenure.config import Settings
from tenure.model.errors import NotSupported, TenureError
from tenure.model.outbox import Delivery
from tenure.model.query import MAX_PAGE
from tenure.model.status import DeliveryState
from tenure.ports.attended import Attended
from tenure.ports.outbox import Outbox
from tenure.ports.run_store import RunStateStore


def outbox_of(store: RunStateStore) -> Outbox:
    if isinstance(store, Outbox):
        return store
    if isinstance(store, Attended):
        raise NotSupported(
            f"{store.attended_by} sends the callbacks: ask it (GET /v1/callbacks), or name its own "
            "store on its machine"
        )
    raise NotSupported(
        f"{type(store).__name__} keeps no callbacks: they are sent from memory while the run's "
        "process lives, and one that is given up shows as callback_error: tenure status --json"
    )


async def run_with_callbacks(store: RunStateStore, word: str | None) -> str | None:
    """The run behind what was typed, if anything was. ``RunNotFound``: an outbox would only say
    that it has nothing."""
    if word is None:
        return None
    return (await store.get_run(await meant_run(store, word))).run_id


async def all_of(
    outbox: Outbox, state: DeliveryState, run_id: str | None
) -> AsyncIterator[Delivery]:
    cursor = None
    while True:
        page = await outbox.list_deliveries(
            state=state, run_id=run_id, limit=MAX_PAGE, cursor=cursor
        )
        for delivery in page.items:
            yield delivery
        cursor = page.cursor
        if cursor is None:
            return


async def tell_of_undelivered(settings: Settings, run_id: str) -> None:
    """One line if something of this run did not arrive. A store that cannot say so now is no
    reason to call the run anything but what it is."""
    with suppress(TenureError):
        async with reading(settings) as store:
            if not isinstance(store, Outbox):
                return
            waiting = await _count(store, DeliveryState.WAITING, run_id)
            dead = await _count(store, DeliveryState.DEAD, run_id)
        said = []
        if waiting:
            verb = "waits" if waiting == 1 else "wait"
            said.append(f"{counted(waiting, 'callback')} {verb} in the outbox")
        if dead:
            said.append(f"{counted(dead, 'callback')} could not be delivered")
        if said:
            note(f"{', '.join(said)}; tenure callbacks list --run {run_id}")


async def _count(outbox: Outbox, state: DeliveryState, run_id: str) -> int:
    return sum([1 async for _ in all_of(outbox, state, run_id)])
