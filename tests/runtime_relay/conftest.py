"""Relays that are closed in the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tenure.model.retry_policy import RetryPolicy
from tenure.ports.callbacks import CallbackSender
from tenure.runtime.options import RelayTiming
from tenure.runtime.relay import Relay
from tenure.stores.memory import InMemoryStore
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.clock import ManualClock
from tenure.testing.factories import unique
from tests.notifiers.conftest import certificate, server_tls

__all__ = ["certificate", "server_tls"]

NEVER_POLLS = RelayTiming(poll=3600)
"""Whatever goes on goes on by itself, or because somebody said so."""
POLICY = RetryPolicy(attempts=3, delay=5, backoff=4)

NewRelay = Callable[..., Relay]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def memory(clock: ManualClock) -> InMemoryStore:
    return InMemoryStore(clock)


@pytest.fixture(params=["memory", "sqlite"])
async def store(
    request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Any]:
    if request.param == "memory":
        yield InMemoryStore(clock)
    else:
        async with await SQLiteStore.open(tmp_path / "runs.db", clock) as sqlite:
            yield sqlite


@pytest.fixture
async def new_relay() -> AsyncIterator[NewRelay]:
    """Relays at work."""
    async with AsyncExitStack() as closing:

        def make(store: Any, sender: CallbackSender, **rest: Any) -> Relay:
            given: dict[str, Any] = {
                "policy": POLICY,
                "timing": NEVER_POLLS,
                "new_id": lambda: unique("token"),
            }
            relay = Relay(store, sender, **(given | rest))
            relay.open()
            closing.push_async_callback(relay.close, 0)
            return relay

        yield make
