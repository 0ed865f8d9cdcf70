"""Relays in processes of their own, on one SQLite file, killed at any moment."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from tenure.model.outbox import Delivery
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import DeliveryState
from tenure.model.update import Position
from tenure.notifiers.http import HttpSender, HttpSettings
from tenure.runtime.relay import Relay
from tenure.stores.sqlite import SQLiteStore
from tenure.system import new_update_id
from tests.notifiers.receiver import Received, Receiver
from tests.runtime_relay.hooks import EVERYTHING, firsts, place
from tests.runtime_relay.relay_process import POLICY, TIMING, Nursery, Orders, started
from tests.runtime_relay.senders import PATIENCE, busy_run

pytestmark = pytest.mark.slow

EVENTS_OF_A_RUN = 8


async def deliveries_of(store: SQLiteStore) -> list[Delivery]:
    found: list[Delivery] = []
    cursor: str | None = None
    while True:
        page = await store.list_deliveries(limit=500, cursor=cursor)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return found


async def places_in_the_journal(store: SQLiteStore, run_id: str) -> list[Position]:
    """Of the events that the target asked for."""
    return [
        event.position
        for event in await store.read_events(run_id, Position())
        if event.kind in EVERYTHING and event.status is not None
    ]


def places_by_run(received: Iterable[Received]) -> dict[str, list[Position]]:
    """Of each run, in the order in which they came for the first time."""
    found: dict[str, list[Position]] = defaultdict(list)
    for each in firsts(received):
        found[each.json["run_id"]].append(place(each))
    return found


def ids_of(receiver: Receiver) -> list[str]:
    return [each.headers["webhook-id"] for each in receiver.received]


async def test_relays_of_two_processes_deliver_each_callback_once_and_in_order(
    tmp_path: Path,
) -> None:
    database = tmp_path / "runs.db"
    async with await SQLiteStore.open(database) as store, Receiver() as receiver:
        url = receiver.url("ok")
        orders = [Orders(database=str(database), url=url, number=number) for number in (1, 2)]
        processes = [started(each) for each in orders]
        for _ in range(60):
            target = CallbackTarget(name="hook", url=url, events=EVERYTHING)
            await busy_run(store, target, steps=1)
        await receiver.got(60 * EVENTS_OF_A_RUN)
        for process in processes:
            await asyncio.to_thread(process.communicate)
            assert process.returncode == 0
        assert {each.state for each in await deliveries_of(store)} == {DeliveryState.DELIVERED}
    ids = ids_of(receiver)
    assert len(ids) == len(set(ids)) == 60 * EVENTS_OF_A_RUN
    assert all(each == sorted(each) for each in places_by_run(receiver.received).values())


@pytest.mark.parametrize("kills", [30, pytest.param(200, marks=pytest.mark.long)])
async def test_killed_relays_lose_nothing(tmp_path: Path, kills: int) -> None:
    """Between commit and send, between send and settle, and in between: whatever the journal says
    is delivered, or waits; what was sent twice has one id; order is kept."""
    chance = random.Random(200)
    database = str(tmp_path / "runs.db")
    async with (
        await SQLiteStore.open(database) as store,
        Receiver() as receiver,
        Nursery() as nursery,
    ):
        for number in range(1, kills + 1):
            orders = Orders(database=database, url=receiver.url("ok"), number=number, runs=1)
            when, came = chance.randint(1, EVENTS_OF_A_RUN), len(receiver.received)
            match number % 3:
                case 0:
                    orders.die_before = when
                case 1:
                    orders.die_after = when
            process_id = await nursery.bear(orders)
            if number % 3 == 2:
                await receiver.got(came + when)
                os.kill(process_id, signal.SIGKILL)
            assert await nursery.ended() == signal.SIGKILL
        runs = await check_books(store, receiver)
        assert len(runs) == kills
        await deliver_the_rest(store)
        await check_books(store, receiver)
        assert {each.state for each in await deliveries_of(store)} == {DeliveryState.DELIVERED}
    assert places_by_run(receiver.received) == runs, "lost, or out of order"
    ids = defaultdict(set)
    for each in receiver.received:
        ids[each.json["run_id"], place(each)].add(each.headers["webhook-id"])
    assert all(len(each) == 1 for each in ids.values())
    assert len(receiver.received) > len(ids), "no kill came between send and settle"


async def check_books(store: SQLiteStore, receiver: Receiver) -> dict[str, list[Position]]:
    """Each event in the journal is one delivery, and what is settled did come in."""
    came = set(ids_of(receiver))
    kept: dict[str, list[Position]] = defaultdict(list)
    for delivery in reversed(await deliveries_of(store)):
        kept[delivery.run_id].append(delivery.event.position)
        if delivery.state is not DeliveryState.WAITING:
            assert delivery.id in came
    for run_id, places in kept.items():
        assert places == await places_in_the_journal(store, run_id)
    return kept


async def deliver_the_rest(store: SQLiteStore) -> None:
    sender = HttpSender(HttpSettings(allow_private=True))
    relay = Relay(store, sender, POLICY, new_id=new_update_id, timing=TIMING)
    relay.open()
    runs = {each.run_id for each in await deliveries_of(store)}
    try:
        assert await relay.flush(PATIENCE, runs)
    finally:
        await relay.close()
        await sender.close()
