"""Relays in processes of their own, on one SQLite file, killed at any moment."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
from collections import defaultdict
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
from tests.runtime_relay.inbox import Inbox, Letter
from tests.runtime_relay.relay_process import POLICY, TIMING, Nursery, Orders, started
from tests.runtime_relay.senders import PATIENCE, busy_run

EVENTS = ("run", "step", "host")
EVENTS_OF_A_RUN = 8
KILLS = 200
UNWANTED = Position(2, 1)
"""Of each run, the one that its receiver refuses for good."""


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
        if event.kind in EVENTS and event.status is not None
    ]


async def end(process: subprocess.Popen[str]) -> None:
    await asyncio.to_thread(process.communicate)
    assert process.returncode == 0


@pytest.mark.slow
async def test_relays_of_two_processes_deliver_each_callback_once_and_in_order(
    tmp_path: Path,
) -> None:
    database = tmp_path / "runs.db"
    async with await SQLiteStore.open(database) as store, Inbox(takes_time=0.001) as inbox:
        target = CallbackTarget(name="hook", url=inbox.url, events=EVENTS)
        orders = [Orders(database=str(database), url=inbox.url, number=number) for number in (1, 2)]
        processes = [started(each) for each in orders]
        for _ in range(60):
            await busy_run(store, target, steps=1)
        await inbox.gets(60 * EVENTS_OF_A_RUN)
        for process in processes:
            await end(process)
        found = await deliveries_of(store)
        assert {each.state for each in found} == {DeliveryState.DELIVERED}
    assert len(inbox.ids) == len(set(inbox.ids)) == 60 * EVENTS_OF_A_RUN
    assert all(places == sorted(places) for places in inbox.places().values())
    assert max(inbox.most_at_once.values()) == 1


class Fate:
    """Kills a relay from outside, at the moment a certain letter comes in."""

    def __init__(self) -> None:
        self._victim: int | None = None
        self._left = 0

    def counts(self, letters: int) -> None:
        self._left = letters

    def chooses(self, victim: int) -> None:
        """Who may have sent some of those letters by now."""
        self._victim = victim
        self._strike_in_time()

    def hears_of(self, _: Letter) -> None:
        self._left -= 1
        self._strike_in_time()

    def _strike_in_time(self) -> None:
        if self._victim is not None and self._left <= 0:
            os.kill(self._victim, signal.SIGKILL)
            self._victim = None


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_two_hundred_killed_relays_lose_nothing(tmp_path: Path) -> None:
    """Between commit and send, between send and settle, and in between: whatever the journal says
    is delivered, or waits, or is a dead letter; what was sent twice has one id; order is kept."""
    chance = random.Random(KILLS)
    fate = Fate()
    database = str(tmp_path / "runs.db")
    async with (
        await SQLiteStore.open(database) as store,
        Inbox(fate.hears_of, refuses=lambda letter: letter.place == UNWANTED) as inbox,
        Nursery() as nursery,
    ):
        for number in range(1, KILLS + 1):
            orders = Orders(database=database, url=inbox.url, number=number, runs=1)
            when = chance.randint(1, EVENTS_OF_A_RUN)
            match number % 3:
                case 0:
                    orders.die_before = when
                case 1:
                    orders.die_after = when
            fate.counts(when)
            victim = await nursery.bear(orders)
            if number % 3 == 2:
                fate.chooses(victim)
            assert await nursery.ended() == signal.SIGKILL
        runs = await check_books(store, inbox)
        assert len(runs) == KILLS
        await deliver_the_rest(store)
        await check_books(store, inbox)
        for delivery in await deliveries_of(store):
            unwanted = delivery.event.position == UNWANTED
            assert delivery.state == (DeliveryState.DEAD if unwanted else DeliveryState.DELIVERED)
    received = inbox.places()
    for run_id, places in runs.items():
        assert received[run_id] == places, "lost, or out of order"
    ids = defaultdict(set)
    for letter in inbox.letters:
        ids[letter.run_id, letter.place].add(letter.delivery_id)
    assert all(len(each) == 1 for each in ids.values())
    assert len(inbox.ids) > len(set(inbox.ids)), "no kill came between send and settle"


async def check_books(store: SQLiteStore, inbox: Inbox) -> dict[str, list[Position]]:
    """Each event in the journal is one delivery, and what is settled did come in."""
    came = set(inbox.ids)
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
