"""A process that relays callbacks from a SQLite file, and may be told when to die.

``python -m tests.runtime_relay.relay_process`` takes its ``Orders`` as JSON on standard input and
says ``ready`` when its relay is at work. It ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import msgspec

from tenure.model.outbox import Delivery
from tenure.model.retry import RetryPolicy
from tenure.model.snapshot import CallbackTarget
from tenure.notifiers.http import HttpSender, HttpSettings
from tenure.ports.sender import CallbackSender, NotTaken
from tenure.runtime.relay import Relay
from tenure.runtime.relay_timing import RelayTiming
from tenure.stores.sqlite import SQLiteStore
from tenure.system import new_update_id
from tenure.testing import factories
from tests.runtime_relay.senders import busy_run

ROOT = Path(__file__).parents[2]
TIMING = RelayTiming(send=0.5, begin=0.3, margin=0.1, poll=0.02)
POLICY = RetryPolicy(attempts=8, delay=0.05)


class Orders(msgspec.Struct, kw_only=True):
    database: str
    url: str
    number: int
    """Of this process, among those that share the file."""
    runs: int = 0
    """To write before relaying, in this very process."""
    die_before: int | None = None
    """Which attempt is never made: it was claimed, and the process is gone."""
    die_after: int | None = None
    """Which attempt is made and never settled."""


class Mortal:
    """Carries callbacks until its hour has come."""

    def __init__(self, sender: CallbackSender, orders: Orders) -> None:
        self._sender = sender
        self._orders = orders
        self._attempts = count(1)

    async def send(self, delivery: Delivery) -> NotTaken | None:
        number = next(self._attempts)
        if number == self._orders.die_before:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = await self._sender.send(delivery)
        if number == self._orders.die_after:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    async def close(self) -> None:
        await self._sender.close()


async def relay(orders: Orders) -> None:
    factories._numbers = count(orders.number * 1_000_000)
    target = CallbackTarget(name="hook", url=orders.url, events=("run", "step", "host"))
    async with await SQLiteStore.open(orders.database) as store:
        for _ in range(orders.runs):
            await busy_run(store, target, steps=1)
        sender = Mortal(HttpSender(HttpSettings(allow_private=True, total_timeout=0.5)), orders)
        relay = Relay(store, sender, POLICY, new_id=new_update_id, timing=TIMING)
        relay.open()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        await relay.close()
        await sender.close()


def started(orders: Orders) -> subprocess.Popen[str]:
    """Its standard input stays open: closing it asks the process to end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.runtime_relay.relay_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(orders).decode() + "\n")
    process.stdin.flush()
    return process


if __name__ == "__main__":
    asyncio.run(relay(msgspec.json.decode(sys.stdin.readline(), type=Orders)))
