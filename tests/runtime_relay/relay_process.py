"""Processes that relay callbacks from a SQLite file, and may be told when to die.

``python -m tests.runtime_relay.relay_process`` takes ``Orders`` as JSON, one in a line of its
standard input, and says ``ready`` when its relay is at work. It ends when its standard input does.

With ``nursery`` behind it, it forks a process for each line, says its number, and how it ended when
it has: a child has nothing to load, so hundreds of them can be killed in a test.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Self

import msgspec

from tenure.model.outbox import Delivery
from tenure.model.retry_policy import RetryPolicy
from tenure.model.snapshot import CallbackTarget
from tenure.notifiers.http import HttpSender, HttpSettings
from tenure.ports.callbacks import CallbackSender, NotTaken
from tenure.runtime.options import RelayTiming
from tenure.runtime.relay import Relay
from tenure.stores.sqlite import SQLiteStore
from tenure.system import new_update_id
from tenure.testing import factories
from tests.runtime_relay.senders import PATIENCE, busy_run

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


async def relay(orders: Orders, *, told_to_end: bool) -> None:
    factories._numbers = count(orders.number * 1_000_000)
    target = CallbackTarget(name="hook", url=orders.url, events=("run", "step", "host"))
    async with await SQLiteStore.open(orders.database) as store:
        for _ in range(orders.runs):
            await busy_run(store, target, steps=1)
        sender = Mortal(HttpSender(HttpSettings(allow_private=True, total_timeout=0.5)), orders)
        relay = Relay(store, sender, POLICY, new_id=new_update_id, timing=TIMING)
        relay.open()
        if not told_to_end:
            await asyncio.Event().wait()
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


class Nursery:
    """Children one after another. ``async with Nursery() as nursery``."""

    def __init__(self) -> None:
        self._youngest: int | None = None

    async def __aenter__(self) -> Self:
        self._parent = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.runtime_relay.relay_process",
            "nursery",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        return self

    async def __aexit__(self, *exit_details: object) -> None:
        if self._youngest is not None:
            os.kill(self._youngest, signal.SIGKILL)
        assert self._parent.stdin is not None
        self._parent.stdin.close()
        await self._parent.wait()

    async def bear(self, orders: Orders) -> int:
        """Its process id."""
        assert self._parent.stdin is not None
        self._parent.stdin.write(msgspec.json.encode(orders) + b"\n")
        self._youngest = await self._word()
        return self._youngest

    async def ended(self) -> int:
        """The signal that killed the youngest, or 0."""
        killed_by = await self._word()
        self._youngest = None
        return killed_by

    async def _word(self) -> int:
        assert self._parent.stdout is not None
        return int(await asyncio.wait_for(self._parent.stdout.readline(), PATIENCE))


def nurse() -> None:
    for line in sys.stdin:
        orders = msgspec.json.decode(line, type=Orders)
        child = os.fork()
        if child == 0:
            asyncio.run(relay(orders, told_to_end=False))
        print(child, flush=True)
        print(os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["nursery"]:
        nurse()
    else:
        orders = msgspec.json.decode(sys.stdin.readline(), type=Orders)
        asyncio.run(relay(orders, told_to_end=True))
